"""A ConsumeQueueStore in RocketMQ's files: `consumequeue/` for the queues, `index/` for the keys.

Everything here is derived from the log. After every step the files can be completed from the log,
starting at the durable checkpoint:

- Dispatch writes units and index entries. `flush` makes them durable, and advances the checkpoint
after its fsyncs, never before.
- Before the first write after an opening, the checkpoint is marked as not clean. Opening a store
that is not clean cuts all queues and the index back to what is durable.
- Cuts and deletions that a crash interrupts are repeated at the next opening.
"""

from __future__ import annotations

import logging
import shutil
from typing import TYPE_CHECKING

from migration.errors import QueueFileError
from migration.files.checkpoint import DeadTopic, FileQueueCheckpoint, write_checkpoint
from migration.files.dispatch_groups import DispatchGroups, group_requests
from migration.files.handles import FileHandles
from migration.files.index import IndexFileSet
from migration.files.options import TRASH_DIRECTORY, FileQueueOptions
from migration.files.queues import FileQueueSet
from migration.files.reads import FileQueueReads
from migration.files.recovery import cut_queues, open_files
from migration.formats import INDEX_DIRECTORY, QUEUE_DIRECTORY, UNIT_SIZE
from store.base import DIRECTORY_MODE, Clock, Lock, SystemClock, fsync_directory, no_progress
from store.consume_queue import DispatchRequest
from store.errors import FlushError, StoreBusyError, StoreFailedError
from store.format import MIN_RECORD_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from migration.files.queue import FileQueue, PendingUnits
    from store.base import Progress
    from store.consume_queue import LastUnit

logger = logging.getLogger(__name__)


class FileQueueStore(FileQueueReads):
    """ConsumeQueueStore over files, byte for byte as RocketMQ 5 writes them.

    Thread: any; one writer at a time, under `_writing`; reads take no lock of the store. Locks:
    `_flushing` before `_writing`. `_writing` is not held during an fsync of units. After a failed
    fsync all writes fail; reads continue.
    """

    def __init__(
        self,
        root: Path,
        *,
        store_time_ms: Callable[[int], int | None],
        record_at: Callable[[int], DispatchRequest | None],
        options: FileQueueOptions | None = None,
        clock: Clock | None = None,
        progress: Progress = no_progress,
    ) -> None:
        """Open the files below `root`; after a crash, cut them back to what is durable.

        `store_time_ms` and `record_at` read the record at a physical offset from the log, and
        return None if there is none. A cleanly closed store is only read. Raises StoreFormatError
        for a damaged checkpoint.
        """
        options = options or FileQueueOptions()
        handles = FileHandles(options.max_open_files)
        queues = FileQueueSet(
            root / QUEUE_DIRECTORY,
            options.units_per_file * UNIT_SIZE,
            handles,
            options.max_cached_queues,
        )
        index = IndexFileSet(
            root / INDEX_DIRECTORY, options.index, handles, clock or SystemClock(), store_time_ms
        )
        super().__init__(queues, index, store_time_ms, record_at)
        # Constant after construction.
        self._root = root
        self._handles = handles
        self._flushing = Lock()
        self._writing = Lock()
        found = open_files(root, queues, index, handles, progress)
        # Guarded by _writing; single values may be read without it.
        self._dispatched = found.dispatched_offset
        self._flushed = found.dispatched_offset  # where dispatching continues after a crash
        # Data derived from records below it survives a power loss.
        self._durable = found.durable_offset
        self._clean = found.clean  # as in the checkpoint on disk
        self._dead = dict(found.dead_topics)
        self._index_is_stale = found.index_is_stale
        self._log_start = 0
        self._units_written = 0
        self._flushes = 0
        self._failure: BaseException | None = None

    # --- dispatch --------------------------------------------------------------------------

    @property
    def dispatched_offset(self) -> int:
        return self._dispatched

    @property
    def durable_offset(self) -> int:
        """Physical offset below which everything survives a crash; opening after one continues
        dispatch there."""
        return self._flushed

    @property
    def gathers(self) -> bool:
        return True  # one write for each queue, for any number of messages

    def dispatch(self, requests: Sequence[DispatchRequest], end_offset: int) -> None:
        """See Dispatcher. Visible to readers on return; durable after `flush`.

        Offsets that the log left out stay blank, each unit at its own index (H20). If two records
        have the same place, the earlier one keeps it, as in RocketMQ. Raises, with nothing written:
        QueueNameError for a topic or light queue that cannot name a directory, UnitConflictError,
        QueueFileError, DiskFullError.
        """
        with self._writing:
            self._check_writable()
            groups = group_requests(requests, self._dead)
            pending: list[tuple[FileQueue, PendingUnits]] = []
            for (topic, queue_id), (offsets, fields) in groups.queues.items():
                queue = self._queues.get_or_create(topic, queue_id)
                found = queue.check(offsets, fields, self._log_start, self._record_at)
                if found is not None:
                    pending.append((queue, found))
            if pending or groups.records:
                self._mark_unclean()
                self._write(pending, groups)
            self._dispatched = max(self._dispatched, end_offset)

    def _write(self, pending: list[tuple[FileQueue, PendingUnits]], groups: DispatchGroups) -> None:
        """Write units and index entries. Readers see all of them or none."""
        try:
            for queue, units in pending:
                queue.write(units)
            if groups.records:
                if self._index_is_stale:
                    self._index.clear()
                    self._index_is_stale = False
                self._index.insert(groups.records)
        except BaseException as error:
            try:
                for queue, units in pending:
                    queue.undo(units)
            except (OSError, StoreBusyError):
                # Units of an incomplete dispatch may be left; the next opening cuts them.
                self._failure = error
            raise
        for queue, units in pending:
            queue.commit(units)
            self._units_written += sum(len(fields) for _, fields in units.runs) // 3

    def _mark_unclean(self) -> None:
        if self._clean:
            self._save(clean=False)

    def _save(self, *, clean: bool) -> None:
        """Write what is durable to the checkpoint. Must hold `_writing`."""
        write_checkpoint(
            self._root,
            FileQueueCheckpoint(
                dispatched_offset=self._flushed,
                durable_offset=self._durable,
                clean=clean,
                dead_topics=tuple(DeadTopic(*pair) for pair in sorted(self._dead.items())),
                indexed=0 <= self._index.first_offset < self._flushed,
            ),
        )
        self._clean = clean

    def rewrite(self, requests: Sequence[DispatchRequest]) -> None:
        """See ConsumeQueueStore. The only call that overwrites units."""
        with self._writing:
            self._check_writable()
            groups = group_requests(requests, self._dead)
            for (topic, queue_id), (offsets, fields) in groups.queues.items():
                queue = self._queues.get_or_create(topic, queue_id)
                units = queue.differing(offsets, fields, self._log_start)
                if units is not None:
                    self._mark_unclean()
                    queue.write(units)
                    queue.commit(units)

    def restore_last_units(self, units: Sequence[LastUnit]) -> None:
        """See ConsumeQueueStore. The written units refer to records below the log's start, so no
        reader sees them, and blanks may be before them."""
        for topic, queue_id, queue_offset, physical_offset in units:
            if self.next_offsets([(topic, queue_id)])[0] > queue_offset:
                continue
            request = DispatchRequest(
                topic=topic,
                queue_id=queue_id,
                queue_offset=queue_offset,
                physical_offset=physical_offset,
                record_size=MIN_RECORD_BYTES,
                tag_code=0,
                store_time_ms=0,
                keys=(),
                light_queues=(),
                in_queue=True,
            )
            self.dispatch([request], 0)

    # --- removal ---------------------------------------------------------------------------

    def delete_topic(self, topic: str, physical_offset: int) -> None:
        """See ConsumeQueueStore. Durable on return."""
        with self._writing:
            self._check_writable()
            if self._dispatched > physical_offset:
                return
            trash = self._root / TRASH_DIRECTORY
            trash.mkdir(DIRECTORY_MODE, exist_ok=True)
            if self._queues.move_topic_away(topic, trash / str(physical_offset)):
                fsync_directory(self._root / QUEUE_DIRECTORY)
                fsync_directory(trash)
            # The index cannot delete single keys, so the checkpoint records deleted topics.
            self._dead = {**self._dead, topic: physical_offset}
            self._save(clean=self._clean)
        shutil.rmtree(trash, ignore_errors=True)

    def truncate(self, log_end: int) -> None:
        """See ConsumeQueueStore. Durable on return."""
        with self._flushing, self._writing:
            self._check_writable()
            # If a power loss removed the record of a deletion, the topic exists again. Its queues
            # are gone, and are rebuilt from the log.
            dead = {name: at for name, at in self._dead.items() if at < log_end}
            is_undone = dead != self._dead
            if log_end >= max(self._dispatched, self._durable) and not is_undone:
                return
            self._dead = dead
            self._dispatched = 0 if is_undone else min(self._dispatched, log_end)
            self._flushed = min(self._flushed, self._dispatched)
            self._durable = min(self._durable, log_end)
            # First, so that the next opening repeats a cut that a crash interrupts.
            self._save(clean=False)
            cut_queues(self._queues, log_end)
            self._index.cut(log_end)
            self._sync_all()
            self._flushed_up_to(self._dispatched, clean=False)

    def rebuild_queue(self, topic: str, queue_id: int, log_start: int) -> None:
        """Remove a queue's units of the live log, so that dispatching the log again rebuilds them.

        `dispatched_offset` is 0 afterwards. If the files can be read, units below `log_start` stay,
        so that the offsets of a queue without live messages continue. Durable on return.
        """
        with self._flushing, self._writing:
            self._check_writable()
            self._dispatched = self._flushed = 0
            self._save(clean=False)
            try:
                queue = self._queues.repair(topic, queue_id)
                queue.cut(log_start)
            except QueueFileError:
                self._queues.remove_files(topic, queue_id)
            self._sync_all()

    def rebuild_index(self) -> None:
        """Remove the key index, so that dispatching the log again rebuilds it. Durable on
        return."""
        with self._flushing, self._writing:
            self._check_writable()
            self._dispatched = self._flushed = 0
            self._save(clean=False)
            self._index.clear()
            self._sync_all()

    def keep_from(self, store_time_ms: int) -> None:
        """Does nothing: files expire with the log, not by time."""

    def expire(self, log_start: int, store_time_ms: int) -> None:
        """See ConsumeQueueStore: deletes whole files, never the last one of a queue.

        Unreadable files stay. Repeatable; files that a crash brings back are harmless.
        """
        if self._flushed < min(log_start, self._dispatched):
            # Dropped records cannot be dispatched again, and queue offsets must continue after a
            # crash.
            self.flush()
        self._log_start = max(self._log_start, log_start)
        for topic, queue_id in self._queues.names():
            if self._queues.count_files(topic, queue_id) < 2:
                continue
            with self._writing:
                self._check_writable()
                try:
                    queue = self._queues.get(topic, queue_id)
                except QueueFileError as error:
                    logger.warning("not expired: %s", error)
                    continue
                if queue is not None:
                    queue.drop_leading(log_start)
        with self._writing:
            self._check_writable()
            dropped = self._index.expire(log_start)
            alive = {name: end for name, end in self._dead.items() if end > log_start}
            if dropped or alive != self._dead:
                self._dead = alive
                self._save(clean=self._clean)

    def maintain(self) -> int:
        """Does nothing: files need no periodic work."""
        return 0

    def compact(
        self,
        progress: Callable[[float], None] | None = None,
        *,
        family: str | None = None,
        topic: str | None = None,
    ) -> None:
        """Does nothing: `expire` and `delete_topic` free space at once."""

    # --- durability and end of life --------------------------------------------------------

    def flush(self) -> None:
        """See ConsumeQueueStore. Raises FlushError, which is final; DiskFullError, which can be
        retried."""
        with self._flushing:
            with self._writing:
                self._check_writable()
                if self._clean and self._dispatched == self._flushed:
                    return
                point = self._dispatched
                self._index.write_back()
                files, directories = self._handles.take_dirty()
            self._sync(files, directories)
            with self._writing:
                self._flushed_up_to(point, clean=self._clean)
                self._flushes += 1

    def _flushed_up_to(self, point: int, *, clean: bool) -> None:
        self._flushed = point
        self._durable = max(self._durable, point)
        self._save(clean=clean)

    def _sync(self, files: set[str], directories: set[str]) -> None:
        try:
            self._handles.sync(files, directories)
        except OSError as error:
            self._failure = error
            raise FlushError(f"file queues are durable up to {self.durable_offset}") from error

    def _sync_all(self) -> None:
        """Make everything written so far durable. Must hold both locks."""
        self._index.write_back()
        self._sync(*self._handles.take_dirty())

    def statistics(self) -> dict[str, float]:
        return {
            "file_queue_dispatched_offset": self._dispatched,
            "file_queue_durable_offset": self.durable_offset,
            "file_queue_units_written": self._units_written,
            "file_queue_flushes": self._flushes,
            "file_queue_cached_queues": self._queues.cached_count,
            "file_queue_open_files": self._handles.open_count,
            "file_queue_dirty_files": self._handles.dirty_count,
            "index_files": self._index.file_count,
            "index_entries": self._index.entry_count,
        }

    def close(self) -> None:
        """See ConsumeQueueStore. Data that cannot be flushed is dispatched again later."""
        with self._flushing, self._writing:
            if self._closed:
                return
            self._closed = True
            try:
                changed = not self._clean or self._dispatched != self._flushed
                if changed and self._failure is None:
                    self._sync_all()
                    self._flushed_up_to(self._dispatched, clean=True)
            finally:
                self._handles.close()

    def _check_writable(self) -> None:
        self._check_open()
        if self._failure is not None:
            raise StoreFailedError("the file queues failed before") from self._failure
