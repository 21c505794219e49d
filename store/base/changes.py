"""Waits for changes of state guarded by a lock; an interrupt of a waiting thread is safe."""

from __future__ import annotations

import contextlib
import threading
from math import inf
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.base.lock import Lock

#: How long a signal may wait for its handler. A wait without a limit can miss a signal that comes
#: just before the thread sleeps, or that the system gives to another thread: it is only noted, and
#: Python runs its handler when the main thread returns from the wait.
_ANSWERS_SIGNALS_S = 0.5


class Changes:
    """State guarded by a lock, with waiters for its changes. Thread: any.

    threading.Condition would do, but for Ctrl-C: a waiter releases and reacquires the lock in
    Python code. If a signal handler raises in between, the `with` block releases a lock that
    another thread holds, and the lock may stay held forever. Here a waiting thread does not hold
    the lock.
    """

    __slots__ = ("_lock", "_waiting")

    def __init__(self, lock: Lock) -> None:
        self._lock = lock
        # Guarded by _lock. Each is released once, or never when its thread was interrupted.
        self._waiting: list[threading.Lock] = []

    def tell(self) -> None:
        """Wake all waiters, which call `look` again. Must be called with the lock held."""
        waiting = self._waiting
        while waiting:
            with contextlib.suppress(RuntimeError):  # released already, before an interrupt
                waiting[-1].release()
            waiting.pop()

    def until(self, look: Callable[[], object], timeout_s: float | None = None) -> bool:
        """Block until `look` returns true. Returns False if `timeout_s` passes first.

        `look` is called with the lock held, now and after each change. Must be called without the
        lock. Raises what `look` raises.
        """
        end_s = inf if timeout_s is None else monotonic() + timeout_s
        while True:
            told = threading.Lock()
            told.acquire()
            with self._lock:
                if look():
                    return True
                self._waiting.append(told)
            while not told.acquire(timeout=max(0.0, min(_ANSWERS_SIGNALS_S, end_s - monotonic()))):
                if monotonic() >= end_s:
                    with self._lock:
                        self._waiting = [each for each in self._waiting if each is not told]
                        return bool(look())
