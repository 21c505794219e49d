"""The job `compact`: rewrites rows, so that the space of dead ones is reclaimed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq.tables import FAMILIES
from migration.jobs import Outcome
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from kvcq_client.pb.v1 import jobs_pb2 as pb
    from migration.jobs import Job
    from server.jobs.kinds import Work
    from store.message_store import MessageStore

#: Progress is reported in parts of this.
_WHOLE = 1000


class Compact:
    """Compacts a family, all of it or a topic's rows.

    It keeps to the rate limit of RocksDB's own compactions. It ends, also when cancelled, after the
    current piece, at most 64 MiB.
    """

    name = "compact"
    unit = "per mille"

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def work(self, wanted: pb.CompactJob) -> Work:
        """Raises InvalidArgumentError, UnknownTopicError."""
        store, family, topic = self._store, wanted.family or None, wanted.topic or None
        if family is not None and family not in FAMILIES:
            raise InvalidArgumentError("family", f"{family!r} is not one of {', '.join(FAMILIES)}")
        if topic is not None:
            store.check_queue(topic, 0)

        def compact(running: Job) -> Outcome:
            before = _bytes_of(store)

            def progress(share: float) -> None:
                running.report(round(share * _WHOLE), _WHOLE)
                running.check()

            running.step("rewrite rows", 0, _WHOLE)
            store.maintenance.compact(progress, family=family, topic=topic)
            after = _bytes_of(store)
            return Outcome(
                f"the database files had {before:,} bytes before, and have {after:,} now",
                {"bytes_before": before, "bytes_after": after},
            )

        return compact


def _bytes_of(store: MessageStore) -> int:
    values = store.queues.statistics()
    return int(sum(values.get(f"{family}.sst_bytes", 0) for family in FAMILIES))
