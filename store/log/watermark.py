"""An offset that only rises, and callbacks that wait for it.

The value is a plain attribute: reading it takes no lock. Everything else happens under one lock
that is held for a few steps and never while a callback runs.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections import deque
from typing import TYPE_CHECKING

from store.base import Lock

if TYPE_CHECKING:
    from collections.abc import Callable

    #: Called once: with None when the offset is reached, with the error when it never will be.
    Callback = Callable[[BaseException | None], None]
    _Waiter = tuple[int, int, Callback]

logger = logging.getLogger(__name__)


class Watermark:
    """A physical end offset that only rises. Exclusive: everything below `value` has the named
    property.

    Thread: any, for all methods. Callbacks run on the thread that advances or fails it, in the
    order of their ends, with no lock held; on the caller's thread if there is nothing to wait for.
    Locks: `_lock`, innermost: no other is taken while it is held. Failure: final, through `fail`.
    The value stays, ends at or below it still count as reached, and every other present or later
    waiter gets the error.
    """

    __slots__ = ("_lock", "_numbers", "_waiters", "failure", "name", "value")

    def __init__(self, name: str, value: int = 0) -> None:
        self.name = name
        #: Read freely; only `advance` writes it.
        self.value = value
        self._lock = Lock()
        # Guarded by _lock. A heap; the number keeps callbacks out of comparisons, and waiters for
        # one end in the order they came.
        self._waiters: list[_Waiter] = []
        self._numbers = itertools.count()
        #: Why it will not rise any more, or None. Read freely; only `fail` writes it.
        self.failure: BaseException | None = None

    def advance(self, to: int) -> None:
        """Raise the value to `to`, then call the waiters that it reaches. A lower `to` does
        nothing.

        Ctrl-C may interrupt it at any point; all waiters are called nevertheless, one of them
        perhaps twice.
        """
        reached: deque[_Waiter] = deque()
        try:
            with self._lock:
                if to <= self.value or self.failure is not None:
                    return
                self.value = to
                # The usual case ends here: this is on the path of every append.
                if not self._waiters or self._waiters[0][0] > to:
                    return
                self._take_reached(reached)
            self._call_all(reached)
        except BaseException:
            with self._lock:
                self._take_reached(reached)
            self._call_all(reached)
            raise

    def _take_reached(self, reached: deque[_Waiter]) -> None:
        """Must hold `_lock`. Each waiter is always in one of the two collections, for a moment in
        both."""
        while self._waiters and self._waiters[0][0] <= self.value:
            if not reached or reached[-1] is not self._waiters[0]:
                reached.append(self._waiters[0])
            heapq.heappop(self._waiters)

    def _call_all(self, reached: deque[_Waiter]) -> None:
        while reached:
            self._call(reached[0][2], None)
            reached.popleft()

    def fail(self, error: BaseException) -> None:
        """Deliver `error` to all present and later waiters. Only the first failure counts."""
        with self._lock:
            if self.failure is not None:
                return
            self.failure = error
            waiters = sorted(self._waiters)
            self._waiters.clear()
        for _, _, callback in waiters:
            self._call(callback, error)

    def call_when(self, end: int, callback: Callback) -> None:
        """Call `callback(None)` once `value` has reached `end`, or `callback(error)` on failure.

        It is called once (Ctrl-C inside `advance` may repeat it), and immediately if the outcome is
        already known. A callback must be short, because it delays others on its thread. Its
        exceptions are logged and not propagated.
        """
        with self._lock:
            failure = None
            if self.value < end:
                failure = self.failure
                if failure is None:
                    heapq.heappush(self._waiters, (end, next(self._numbers), callback))
                    return
        self._call(callback, failure)

    def wait_for(self, end: int, timeout_s: float) -> bool:
        """Block until `value` has reached `end`. Returns False after `timeout_s`. Raises the error
        of `fail`."""
        if self.value >= end:
            return True
        # A bare lock as a one-shot event: a third of the cost of threading.Event.
        answered = threading.Lock()
        answered.acquire()
        failures: list[BaseException] = []

        def answer(error: BaseException | None) -> None:
            if error is not None:
                failures.append(error)
            answered.release()

        self.call_when(end, answer)
        in_time = answered.acquire(timeout=max(0.0, timeout_s))
        if not in_time:
            self._forget(answer)
        if failures:
            # The same error may be raised in many threads: without this its traceback only grows.
            raise failures[0].with_traceback(None)
        return in_time or self.value >= end

    def _forget(self, callback: Callback) -> None:
        """Drop a waiter that gave up, so that they do not accumulate on a stalled disk."""
        with self._lock:
            self._waiters = [waiter for waiter in self._waiters if waiter[2] is not callback]
            heapq.heapify(self._waiters)

    def _call(self, callback: Callback, error: BaseException | None) -> None:
        try:
            callback(error)
        except Exception:
            logger.exception("a callback of watermark %r raised; the others go on", self.name)
