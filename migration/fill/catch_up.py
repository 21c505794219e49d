"""Brings a side from its own watermark to live dispatch, and joins it there.

The log is dispatched to the side again, in batches, with the same rows as live dispatch. Live
dispatch waits for the last batch, and then includes the side, without gap or repeat. After a crash
at any point the next backfill continues from the side's watermark.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from migration.fill.bulk import BulkBackfill
from migration.fill.feed import LogFeed
from migration.fill.pace import Pace, retry_while_side_busy
from migration.sides import ends_below
from store.errors import StoreBusyError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from migration.jobs import Job
    from migration.sides import DoubleQueueStore, Side
    from migration.state import SideName
    from store.consume_queue import DispatchRequest
    from store.message_store import MessageStore

#: Records of one batch. Producers may have to wait for one.
BATCH = 2048
#: A remainder of the log of this size is dispatched while producers wait, which takes some tenths
#: of a second. If it were smaller, a backfill could not catch up with producers that never pause.
_REST_BYTES = 16 << 20
#: Maximum remainder that producers wait for, if the backfill hardly gains on them.
_REST_MOST_BYTES = 64 << 20
_BUSY_WAIT_S = 0.02
#: Rows of a side are flushed after this many bytes of log, so a crash costs at most that much work.
_FLUSH_BYTES = 256 << 20


class Filler:
    """Fills one side of a double store. One job's thread at a time."""

    def __init__(self, store: MessageStore, double: DoubleQueueStore, job: Job) -> None:
        self._double = double
        self._feed = LogFeed(store)
        self._store = store
        self._job = job
        self._bulk = BulkBackfill(store, double, self._end, job)

    def catch_up(self, name: SideName) -> None:
        """Bring the side up to date and join it.

        Raises JobCancelledError, and what the side raises except StoreBusyError.
        """
        double, job = self._double, self._job
        side = double.side(name)
        assert side is not None
        self._double.hold_log(name, side.store.dispatched_offset)
        try:
            self._seed(side)
            job.step(f"backfill {name.value}", side.store.dispatched_offset, self._end())
            self._bulk.run(side)
            pace = Pace(self._store.log)
            flush_at = side.store.dispatched_offset + _FLUSH_BYTES
            rest = _REST_BYTES
            while not self._try_join(side, rest):
                self._catch_up_once(side, pace)
                if self._end() - side.store.dispatched_offset > 2 * rest:
                    self._bulk.run(side)
                    rest = max(_REST_BYTES, min(_REST_MOST_BYTES, 2 * rest))
                if side.store.dispatched_offset >= flush_at:
                    retry_while_side_busy(self._job, side.store.flush)
                    flush_at = side.store.dispatched_offset + _FLUSH_BYTES
        finally:
            self._double.hold_log(name, None)

    def _end(self) -> int:
        """End of what is dispatched and durable; live dispatch handles the rest."""
        dispatched, flushed = self._double.dispatched_offset, self._store.flushed_offset
        if flushed < dispatched:
            self._store.ask_flush()
        return min(dispatched, flushed)

    def _catch_up_once(self, side: Side, pace: Pace) -> None:
        """Dispatch the next batch to the side, up to the durable end."""
        end = self._end()
        with side.filling:
            at = side.store.dispatched_offset
            if at >= end:
                requests: list[DispatchRequest] = []
            else:
                requests, at = self._feed.read(at, end, BATCH)
                retry_while_side_busy(self._job, lambda: self._put(side, requests, at))
        self._double.hold_log(side.name, at)
        self._job.report(at, end)
        self._job.count(rows=len(requests))
        pace.after_batch(self._job, end - at)

    def _try_join(self, side: Side, rest: int) -> bool:
        """Join the side if at most `rest` bytes are left. Returns whether it joined."""
        if self._double.dispatched_offset - side.store.dispatched_offset > rest:
            return False

        def fill_rest(at: int, end: int) -> None:
            while at < end:
                requests, at = self._feed.read(at, end, BATCH)
                self._put(side, requests, at)
                self._job.report(at, end)
                self._job.count(rows=len(requests))

        try:
            self._double.join(side.name, fill_rest)
        except StoreBusyError:
            self._job.pause(_BUSY_WAIT_S)
            return False
        return True

    def _put(self, side: Side, requests: Sequence[DispatchRequest], end: int) -> None:
        """Dispatch to the side. Deletes names there at the position of their deletion in the
        log."""
        applier = self._store.applier.into(side.store)
        for piece, piece_end in applier.pieces(requests, end):
            side.store.dispatch(piece, piece_end)

    def _seed(self, side: Side) -> None:
        """Create queues whose messages have all expired, so that their offsets continue."""
        log_start = self._store.log.start_offset
        source = self._double.side(side.name.other)
        if source is None or log_start == 0:
            return
        self._job.step("queues without messages", 0, 0)
        for unit in ends_below(source.store, log_start):
            retry_while_side_busy(self._job, partial(side.store.restore_last_units, [unit]))
