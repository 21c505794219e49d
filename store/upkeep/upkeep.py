"""Periodic work, and the shutdown of a store."""

from __future__ import annotations

import logging
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from store.errors import LACKS, StoreClosedError, StoreFailedError, StoreFormatError
from store.log import write_left

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.consume_queue import ConsumeQueueStore
    from store.derive import QueueRepair
    from store.log import StoreTimes
    from store.notes import Notes
    from store.puts import AppendPath
    from store.state import Snapshots, StateStore
    from store.store_dir import StoreDir
    from store.upkeep.checkpoints import Checkpoints

#: A note: up to which store time units are to be written again, i64; 0: none are.
REFILL = "refill_until_ms"

#: Interval of writing the time to disk for the next process, ms.
_LEFT_EVERY_MS = 30_000

logger = logging.getLogger(__name__)


class Upkeep:
    """Checks the directory, maintains queues and checkpoint, and closes them.

    Thread: jobs' for `maintain` and `reclaim`; any for the rest.
    """

    def __init__(
        self,
        directory: StoreDir,
        appends: AppendPath,
        queues: ConsumeQueueStore,
        state: StateStore,
        notes: Notes,
        repair: QueueRepair,
        checkpoints: Checkpoints,
        times: StoreTimes,
        snapshots: Snapshots,
    ) -> None:
        # Constant after construction.
        self.checkpoints = checkpoints
        self._directory = directory
        self._appends = appends
        self._log = appends.log
        self._queues = queues
        self._state = state
        self._notes = notes
        self._repair = repair
        self._times = times
        self._left_ms = 0  # under checkpoints.lock
        self._snapshots = snapshots
        # Guarded by checkpoints.lock.
        self._lost: StoreFailedError | None = None  # a file or directory of the store was removed
        # Units stored up to then are to be written again; 0: none are.
        self._refill_until_ms = self._noted_refill_ms()
        self._noted_ms = self._refill_until_ms
        # Set by retention, cleared by the job.
        self._compaction_due = False

    def maintain(self) -> None:
        """One round of periodic work; called by a job every second.

        Keeps the checkpoint behind the flushed log, and the replay after a crash bounded. Rejects
        writes if the directory is gone.
        """
        with self.checkpoints.lock:
            self._look_after_directory()
            if self._appends.flushed.failure is not None:
                if self._lost is None:  # reads continue, so their units must not expire early
                    self._maintain_queues()
                return
            # When one of these fails again and again, the others are done all the same.
            with ExitStack() as stack:
                stack.callback(self._maintain_queues)
                stack.callback(self.checkpoints.write)
                if abs(self._times.now_ms() - self._left_ms) >= _LEFT_EVERY_MS:
                    stack.callback(self.leave_time)
                self.checkpoints.flush_if_due()

    def leave_time(self) -> None:
        """Save the current time for the next process. Durable on return."""
        left = self._times.left()
        write_left(self._notes, left)
        self._left_ms = left.now_ms

    def _noted_refill_ms(self) -> int:
        try:
            return int.from_bytes(self._notes.get(REFILL) or b"", "big")
        except StoreFormatError as error:
            logger.warning("%s is damaged: all units are written again", error.path)
            return self._times.now_ms()

    def _maintain_queues(self) -> None:
        # Noted: after a crash nothing else would tell of it.
        if 0 < self._refill_until_ms <= self._repair.take_refilled_ms():
            self._refill_until_ms = 0
        self._refill_until_ms = max(self._refill_until_ms, self._queues.maintain())
        if self._noted_ms != self._refill_until_ms:
            self._notes.put(REFILL, self._refill_until_ms.to_bytes(8, "big"))
            self._noted_ms = self._refill_until_ms
        if self._refill_until_ms:
            self._repair.refill(self._refill_until_ms)

    def _look_after_directory(self) -> None:
        gone = self._directory.missing_path() or self._log.removed_file()
        if gone is None or self._lost is not None:
            return
        error = StoreFailedError(f"{gone} was removed or replaced while the store was open")
        self._lost = error
        what_to_do = (
            "a restart rebuilds it from snapshots and the log"
            if gone.is_relative_to(self._directory.kvcq)
            else "stop the server and put the files back; what was stored since may be gone"
        )
        logger.critical("%s: no more writes are taken; %s", error, what_to_do)
        self._appends.fail(error)

    def segments_dropped(self, log_start: int, store_time_ms: int | None) -> None:
        """Retention removed segments below `log_start`, with records stored up to that time."""
        self._compaction_due = True
        if store_time_ms is not None:
            self._queues.expire(log_start, store_time_ms)

    def reclaim(self) -> None:
        """Compact the queues if something expired since the last time; called by a job. Slow."""
        if not self._compaction_due:
            return
        self._compaction_due = False
        try:
            # Between pieces: closing does not wait for all of it.
            self._queues.compact(lambda _share: self._appends.check_open())
        except BaseException as error:
            self._compaction_due = True
            if not (self._appends.closed and isinstance(error, StoreClosedError)):
                raise

    def close(self, stop_services: Callable[[], None]) -> None:
        """Drain, flush, and release the directory; appends are rejected."""
        try:
            self._release(stop_services)
        except Exception as error:
            if self._lost is None:
                raise
            raise self._lost from error

    def _close_databases(self) -> None:
        """Repeatable. Also works on a full disk; the next start recovers."""
        for database in (self._queues, self._state):
            with suppress(*LACKS):
                database.close()

    def _release(self, stop_services: Callable[[], None]) -> None:
        # If a step fails, the others are still released; the lock is released last.
        with ExitStack() as stack:
            stack.callback(self._directory.close)
            stack.callback(self._log.close)
            stack.callback(self._close_databases)  # even after Ctrl-C
            stop_services()
            # A flush in another thread ends first: it writes the checkpoint too.
            with self.checkpoints.lock:
                appended = self._log.appended_offset
                dispatched = self._appends.dispatched.value
                flushed = self._appends.flushed.value == appended
                try:
                    if flushed and dispatched == appended and self._lost is None:
                        self._snapshots.stop()
                    self._state.advance(dispatched)
                    self._state.flush()
                    self._queues.close()
                    self._state.close()
                    if self._lost is not None:
                        return
                    self.checkpoints.queues_flushed(dispatched, self._log.flushed_mark)
                    if flushed:
                        self.checkpoints.write_both()
                    self.leave_time()
                    if flushed and dispatched == appended:
                        self._directory.mark_clean()
                except LACKS as error:
                    logger.warning("closed, and the next start recovers: %s", str(error))
