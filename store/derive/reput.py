"""Reput: dispatches records of the log, in log order, behind the appender.

In ASYNC mode the appending thread dispatches a batch itself if no earlier one is pending: the
appender's data need not be parsed again, and readers see the message at once. In SYNC mode, and
whenever the consume queue cannot keep up, batches wait in a bounded list. In SYNC mode the flush
thread dispatches a few rows itself; the reput thread dispatches the rest. Batches that do not fit
in the list are read from the log again.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from store.base import Lock, Wake
from store.consume_queue import row_counts
from store.errors import (
    LACKS,
    DamagedLogError,
    DiskFullError,
    FlushError,
    OutOfDescriptorsError,
    StoreBusyError,
    StoreClosedError,
    StoreFailedError,
)
from store.format import FastParser
from store.log import Damage, Poison, Run, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from store.consume_queue import Dispatcher, DispatchRequest
    from store.derive.state_applier import StateApplier
    from store.log import Acknowledgement, CommitLog, LogAppend, Watermark
    from store.topics import Admission

    #: Sees what was dispatched.
    Listener = Callable[[Sequence[DispatchRequest]], None]

logger = logging.getLogger(__name__)

#: Parsing hands over this many requests at a time.
_PARSE_BATCH = 1024
#: Maximum number of log bytes in the list; batches beyond that are parsed from the log.
_PENDING_BYTES = 64 << 20
#: Maximum number of rows in one dispatch, not counting those of its last message, which is never
#: divided: writing this many holds the interpreter for about 10 ms.
SLICE_ROWS = 4096
#: Batches with more rows are only dispatched together with later ones if that is cheaper; the flush
#: thread dispatches at most this many rows.
_GATHERED_ROWS = 64
#: A stalled consume queue is tried again after this long.
_BUSY_WAIT_S = 0.02


class ReputService:
    """Feeds the dispatchers. Owns the watermark `dispatched`.

    Thread: "reput", any appending thread through `dispatch_or_queue`, and the flush thread through
    `dispatch_due`; `_dispatching` admits one at a time. Locks: `_dispatching`, taken after the
    append lock, never before it; see docs/threads.md. Failure: final. An error other than "busy"
    stops dispatch and fails the watermark, so that appends are rejected. The log stays readable;
    reopening the store dispatches the rest.
    """

    def __init__(
        self,
        log: CommitLog,
        dispatcher: Dispatcher,
        acknowledged: Acknowledgement,
        admission: Admission,
        applier: StateApplier,
        *,
        skip_damaged: bool = False,
    ) -> None:
        # Constant after construction.
        self._log = log
        self._dispatcher = dispatcher
        self.dispatched = acknowledged.dispatched
        self._limit = acknowledged.limit
        self._admission = admission
        self._applier = applier
        self._at_append = acknowledged.at_append
        self._skip_damaged = skip_damaged
        self._thread = threading.Thread(target=self._run, name="reput", daemon=True)
        self._wake = Wake()
        self._dispatching = Lock()
        # Appended by the appender, popped under _dispatching. Each counts its own bytes.
        self._pending: deque[LogAppend] = deque()
        self._offered_bytes = 0
        self._taken_bytes = 0
        self._parser = FastParser()  # under _dispatching
        # The last dispatch until listeners were called with it, since an interrupt may come before
        # that. Under _dispatching; read freely.
        self._untold: Sequence[DispatchRequest] = ()
        # Replaced whole, so that it can be read without a lock.
        self._listeners: tuple[Listener, ...] = ()
        self._stopped = threading.Event()
        #: The error that dispatch waits for, a lack of space or descriptors; None if it does not
        #: wait. Read freely; set by the appender and the reput thread, and cleared by the latter.
        self.waits_for: DiskFullError | OutOfDescriptorsError | None = None
        self.poison_count = 0  # records that were skipped, since opening

    # --- for the appender ------------------------------------------------------------------

    def dispatch_or_queue(self, batch: LogAppend) -> None:
        """Dispatch or queue a batch that was appended. Called under the append lock; never waits
        for the disk.

        May be interrupted at any point; the next `wake` then dispatches the rest.
        """
        if self._at_append and self.dispatched.value < batch.start_offset:
            self._dispatch_little(batch.start_offset)  # deferred batches go first
        if (
            self._at_append
            and batch.row_count <= SLICE_ROWS
            and (batch.row_count <= _GATHERED_ROWS or not self._dispatcher.gathers)
            and self.dispatched.value == batch.start_offset
            and not self._dispatching.locked()
        ):
            try:
                # Not acquired without waiting and released in a `finally`, since an interrupt could
                # come in between. Should the reput thread be first, it is at this very batch.
                with self._dispatching:
                    if self.dispatched.value == batch.start_offset:
                        self._dispatch_slice(batch.requests, batch.end_offset)
                    if self.dispatched.value >= batch.end_offset:
                        return
            except LACKS as error:
                self.waits_for = error
            except StoreBusyError:
                pass  # the reput thread tries again
            except Exception as error:  # noqa: BLE001 - reported through the watermark
                self._fail(error)
                return
        self._keep(batch)
        if self._at_append:
            self._wake.set()

    def defer(self, batch: LogAppend) -> None:
        """Like `dispatch_or_queue`, but a few rows wait until `dispatch_due` is called.

        The caller must call it soon. If it does not, the next `dispatch_or_queue` or `wake`
        dispatches them as well.
        """
        if batch.row_count > _GATHERED_ROWS:
            self.dispatch_or_queue(batch)  # `dispatch_due` would leave them to the thread
        else:
            self._keep(batch)

    def _keep(self, batch: LogAppend) -> None:
        size = batch.end_offset - batch.start_offset
        if self._offered_bytes - self._taken_bytes + size <= _PENDING_BYTES:
            self._pending.append(batch)
            self._offered_bytes += size

    def wake(self) -> None:
        """Report that an append was interrupted before all of it was dispatched."""
        self._wake.set()

    def dispatch_due(self) -> None:
        """Dispatch after the limit has risen. For the flush thread, and after `defer`; never waits
        for the disk.

        A few rows are dispatched here, since handing them to another thread may take longer while
        callers wait. Larger amounts would delay the next flush, so the reput thread dispatches
        them.
        """
        limit = self._limit()
        try:
            self._dispatch_little(limit)
        finally:
            if self.dispatched.value < limit or self._untold:
                self._wake.set()

    def follow(self, flushed: Watermark) -> None:
        """Dispatch more each time more is durable; a failed fsync fails the waiters as well."""
        flushed.call_when(flushed.value + 1, partial(self._flushed, flushed))

    def _flushed(self, flushed: Watermark, error: BaseException | None) -> None:
        if error is None:
            try:
                self.dispatch_due()
            finally:
                self.follow(flushed)
        elif isinstance(error, FlushError):
            self.dispatched.fail(error)

    def _dispatch_little(self, limit: int) -> None:
        if self._is_little(limit) and not self._dispatching.locked():
            self.dispatch_to(limit)

    def _is_little(self, limit: int) -> bool:
        """Whether only a few rows are due, and none of them has to be parsed from the log."""
        row_count = 0
        # A batch has a row at least. Place by place, as others add to the list and take from it
        # meanwhile: an iterator raises then.
        for at in range(_GATHERED_ROWS + 1):
            try:
                batch = self._pending[at]
            except IndexError:
                return at > 0
            if batch.end_offset > limit:
                return at > 0
            if at == 0 and batch.start_offset > self.dispatched.value:
                return False
            row_count += batch.row_count
            if row_count > _GATHERED_ROWS:
                return False
        return True

    def dispatch_to(self, end: int) -> None:
        """Dispatch appended records at least up to `end`, unless that has to wait for RocksDB.

        For an appender whose batch was too large for `dispatch_or_queue`, once it holds no lock,
        and for `dispatch_due`.
        """
        try:
            while self.dispatched.failure is None and self.dispatched.value < end:
                self._step()
        except StoreBusyError:
            pass  # the reput thread tries again
        except Exception as error:  # noqa: BLE001 - reported through the watermark
            self._fail(error)
        except BaseException:
            self._wake.set()  # Ctrl-C: the rest must still be dispatched
            raise

    # --- for the store ---------------------------------------------------------------------

    def add_listener(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with each dispatched batch once it is visible. Returns a function that
        removes it."""
        self._listeners = (*self._listeners, listener)

        def remove() -> None:
            self._listeners = tuple(each for each in self._listeners if each is not listener)

        return remove

    def paused(self) -> AbstractContextManager[object]:
        """A context in which nothing is dispatched. Appends continue; keep it short."""
        return self._dispatching

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Dispatch up to the limit, then end the thread. Repeatable."""
        self._stopped.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def catch_up(self, progress: Callable[[int], None] | None = None) -> None:
        """Dispatch up to the limit on this thread; used while opening, before the thread starts.

        Waits for a consume queue that cannot keep up: a long replay writes faster than RocksDB
        compacts. Raises the other errors of dispatch, each of LACKS, and what `progress` raises.
        """
        while self.dispatched.value < self._limit():
            try:
                self._step()
            except LACKS:
                raise
            except StoreBusyError:
                self._stopped.wait(_BUSY_WAIT_S)
            if progress is not None:
                progress(self.dispatched.value)

    # --- on the thread ---------------------------------------------------------------------

    def _run(self) -> None:
        told: StoreBusyError | None = None  # the stall that was logged
        try:
            while True:
                self._wake.wait()
                stopping = self._stopped.is_set()
                if self._untold:
                    with self._dispatching:
                        self._tell()
                # A watermark that has failed no longer rises.
                while self.dispatched.failure is None and self.dispatched.value < self._limit():
                    try:
                        self._step()
                        self._goes_on(told)
                        told = None
                    except StoreBusyError as error:
                        if told is None:
                            logger.warning("dispatch waits: %s", error)
                            told = error
                        if isinstance(error, LACKS):
                            self.waits_for = error
                        if self._stopped.wait(_BUSY_WAIT_S):
                            break  # the next opening dispatches the rest
                else:
                    self._goes_on(told)  # an appender may have dispatched the rest
                    told = None
                if stopping:
                    break
        except Exception as error:
            logger.exception("dispatch ends at physical offset %d", self.dispatched.value)
            self._fail(error)
        else:
            self.dispatched.fail(StoreClosedError("reput"))

    def _goes_on(self, told: StoreBusyError | None) -> None:
        """Report that nothing is being waited for any more."""
        if told is not None:
            logger.info("dispatch goes on")
        self.waits_for = None

    def _step(self) -> None:
        """Dispatch one run of records that starts at the watermark."""
        with self._dispatching:
            at = self.dispatched.value
            limit = self._limit()
            if at >= limit:  # another thread was first
                return
            pending = self._pending
            while pending and pending[0].start_offset < at:
                self._drop_first()
            if pending and pending[0].start_offset == at:
                if pending[0].end_offset <= limit:
                    self._dispatch_pending(limit)
                    return
            elif pending:
                limit = min(limit, pending[0].start_offset)
            self._dispatch(*self._parse(at, limit), are_live=False)

    def _dispatch_pending(self, limit: int) -> None:
        """Dispatch consecutive pending batches together; the larger the lag, the more at once."""
        taken: list[Sequence[DispatchRequest]] = []
        row_count = 0
        end = self._pending[0].start_offset
        # `copy` takes all of them in one step, in which no appender can add any.
        for batch in self._pending.copy():
            if batch.start_offset != end or batch.end_offset > limit:
                break
            is_alone = self._stands_alone(batch)
            if taken and (is_alone or row_count + batch.row_count > SLICE_ROWS):
                break
            taken.append(batch.requests)
            row_count += batch.row_count
            end = batch.end_offset
            if is_alone:
                break
        requests = taken[0] if len(taken) == 1 else list(chain.from_iterable(taken))
        if row_count <= SLICE_ROWS:
            self._dispatch_slice(requests, end)
        else:
            self._dispatch(requests, end)
        for _ in taken:
            self._drop_first()

    def _stands_alone(self, batch: LogAppend) -> bool:
        """Whether it is dispatched on its own, because its columns save more than joining writes
        would."""
        return batch.row_count > _GATHERED_ROWS and not self._dispatcher.gathers

    def _drop_first(self) -> None:
        batch = self._pending[0]
        self._taken_bytes += batch.end_offset - batch.start_offset
        self._pending.popleft()

    def _parse(self, at: int, limit: int) -> tuple[Sequence[DispatchRequest], int]:
        """Requests of the next records from `at` on, and the position after them. Some may be
        dead."""
        for step in walk(
            self._log.segments, at, end=limit, parser=self._parser, count=_PARSE_BATCH
        ):
            at = step.next_offset
            match step:
                case Run():
                    return step.requests, at
                case Damage():
                    self._leave_out(step)
                case Poison():
                    self.poison_count += 1
                    logger.error(
                        "the record at physical offset %d stands in no queue: %s",
                        step.physical_offset,
                        step.reason,
                    )
        return [], at

    def _leave_out(self, damage: Damage) -> None:
        """Leave damaged records out; they become gaps in their queues, which readers report.

        Raises DamagedLogError if the damage must not be skipped.
        """
        at, goes_on, reason = damage
        if not self._skip_damaged:
            raise DamagedLogError(at, goes_on, reason, can_be_left_out=True)
        logger.error("left out: %d damaged bytes at physical offset %d", goes_on - at, at)

    def _dispatch(
        self, requests: Sequence[DispatchRequest], end: int, *, are_live: bool = True
    ) -> None:
        """Dispatch in slices; after an error the rest is dispatched later, from the log."""
        for piece, piece_end in _slices(requests, end):
            self._dispatch_slice(piece, piece_end, are_live=are_live)

    def _dispatch_slice(
        self, requests: Sequence[DispatchRequest], end: int, *, are_live: bool = True
    ) -> None:
        """`are_live`: the appender vouches for it. Other requests are admitted one by one, with the
        state as of each."""
        if self._untold:
            self._tell()
        begin = self.dispatched.value
        assert end >= begin, f"dispatch up to {end}, behind {begin}"
        assert not requests or begin <= requests[0].physical_offset < end, "dispatch in log order"
        for piece, piece_end in self._applier.pieces(requests, end):
            admitted = piece if are_live else self._admission.admit_all(piece)
            self._dispatcher.dispatch(admitted, piece_end)
        self._untold = requests
        self.dispatched.advance(end)
        logger.debug("dispatched %d records, up to physical offset %d", len(requests), end)
        self._tell()

    def _tell(self) -> None:
        """Call the listeners with the last dispatch. Repeatable. Must hold _dispatching."""
        if self._untold:
            for listener in self._listeners:
                try:
                    listener(self._untold)
                except Exception:
                    logger.exception("a dispatch listener raised; the others go on")
            self._untold = ()

    def _fail(self, error: BaseException) -> None:
        failure = StoreFailedError(f"dispatch stopped at {self.dispatched.value}: {error}")
        failure.__cause__ = error
        self.dispatched.fail(failure)


def _slices(
    requests: Sequence[DispatchRequest], end: int
) -> Iterator[tuple[Sequence[DispatchRequest], int]]:
    """Yield the requests in slices of about SLICE_ROWS rows, each with its end in the log."""
    first = row_count = 0
    for at, rows in enumerate(row_counts(requests)):
        if row_count >= SLICE_ROWS:
            yield requests[first:at], requests[at].physical_offset
            first, row_count = at, 0
        row_count += rows
    yield requests[first:], end
