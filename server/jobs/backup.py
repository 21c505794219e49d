"""The job `backup`: copies the store, while in use, to the server's place for backups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq.backup import copy_in_process, take_backup
from kvcq.consume_queue_store import KvConsumeQueueStore
from kvcq.errors import BackupRefusedError
from migration.jobs import Outcome
from migration.sides import DoubleQueueStore
from server.jobs.backup_places import allowed_target
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcq_client.pb.v1 import jobs_pb2 as pb
    from migration.jobs import Job
    from server.jobs.kinds import Work
    from store.consume_queue import ConsumeQueueStore
    from store.message_store import MessageStore

MOST_BYTES_PER_S = 1 << 40
#: The rate by default: half of what a slow disk reads.
BYTES_PER_S = 64 << 20


class BackupKind:
    """A backup, copied by a separate process.

    If it is cancelled or interrupted it does not count; the next one reuses its files.
    """

    name = "backup"
    unit = "bytes"

    def __init__(
        self, store: MessageStore, places: Sequence[str], bytes_per_s: int = BYTES_PER_S
    ) -> None:
        """`places`: directories and URLs that backups may go to."""
        self._store = store
        self._places = tuple(places)
        self._bytes_per_s = bytes_per_s

    def work(self, wanted: pb.BackupJob) -> Work:
        """Raises InvalidArgumentError, BackupRefusedError."""
        url = allowed_target(wanted.target, self._places)
        rate = wanted.bytes_per_s or self._bytes_per_s
        if not 0 < rate <= MOST_BYTES_PER_S:
            raise InvalidArgumentError("bytes_per_s", f"{rate} is not from 1 to {MOST_BYTES_PER_S}")
        link = wanted.link
        store, queues = self._store, database_of(self._store.queues)

        def backup(running: Job) -> Outcome:
            is_copying = False
            running.step("copy the databases", 0, 0)

            def report(_step: str, done: int, total: int) -> None:
                nonlocal is_copying
                if total and not is_copying:
                    is_copying = True
                    running.step("copy the files", done, total)
                running.report(done, total)
                running.check()

            taken = take_backup(
                store, queues, url, rate=rate, link=link, report=report, copy=copy_in_process
            )
            found = taken.backup
            return Outcome(
                f"backup {found.backup_id} in {url} covers the log up to {found.end_offset:,}",
                {
                    "end_offset": found.end_offset,
                    "files": len(found.files),
                    "bytes": found.size,
                    "new_files": taken.new_files,
                    "new_bytes": taken.new_bytes,
                },
            )

        return backup


def database_of(queues: ConsumeQueueStore) -> KvConsumeQueueStore:
    """The database with all queues. Raises BackupRefusedError if some are in files."""
    if isinstance(queues, KvConsumeQueueStore):
        return queues
    if isinstance(queues, DoubleQueueStore):
        stores = [side.store for side in queues.sides()]
        if len(stores) == 1 and isinstance(stores[0], KvConsumeQueueStore):
            return stores[0]
    raise BackupRefusedError(
        "queues of this store are in RocketMQ's files, which change while they are copied: "
        "finish the migration (`kvcq migrate status` shows the next step), or stop the "
        "server and copy its directory"
    )
