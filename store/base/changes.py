"""Waiting for a change of what a lock guards; an interrupt of who waits does not break it."""

from __future__ import annotations

import contextlib
import threading
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.base.lock import Lock


class Changes:
    """Thread: any.

    threading.Condition would do, but for Ctrl-C: who waits gives the lock back and takes it again
    in Python code. An exception of a signal handler in between makes the block that holds the lock
    release it for somebody else, and it may stay held for ever. Here it is not held by who waits.
    """

    __slots__ = ("_lock", "_waiting")

    def __init__(self, lock: Lock) -> None:
        self._lock = lock
        # Guarded by _lock. Each is released once, or never when its thread was interrupted.
        self._waiting: list[threading.Lock] = []

    def tell(self) -> None:
        """Whoever waits looks again. Called with the lock held."""
        waiting = self._waiting
        while waiting:
            with contextlib.suppress(RuntimeError):  # released already, before an interrupt
                waiting[-1].release()
            waiting.pop()

    def until(self, look: Callable[[], object], timeout_s: float | None = None) -> bool:
        """Whether what `look` returns is true, at once or in time.

        It is called with the lock held, now and after each change. Called without the lock. Raises
        what `look` raises.
        """
        end_s = None if timeout_s is None else monotonic() + timeout_s
        while True:
            told = threading.Lock()
            told.acquire()
            with self._lock:
                if look():
                    return True
                self._waiting.append(told)
            if end_s is None:
                told.acquire()
            elif not told.acquire(timeout=max(0.0, end_s - monotonic())):
                with self._lock:
                    self._waiting = [each for each in self._waiting if each is not told]
                    return bool(look())
