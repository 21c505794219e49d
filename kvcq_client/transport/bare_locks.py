"""Waiting for a bare lock, in a thread that answers signals."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading

#: How long a signal may wait for its handler. A wait without a limit can miss a signal that comes
#: just before the thread sleeps, or that the system gives to another thread: it is only noted, and
#: Python runs its handler when the main thread returns from the wait.
ANSWERS_SIGNALS_S = 0.5


def acquire(lock: threading.Lock, timeout_s: float | None = None) -> bool:
    """Whether the lock was had in time; without a limit, once it was. Raises what a signal's
    handler raises, within ANSWERS_SIGNALS_S of the signal."""
    if timeout_s is None:
        while not lock.acquire(timeout=ANSWERS_SIGNALS_S):
            pass
        return True
    end_s = monotonic() + timeout_s
    while not lock.acquire(timeout=max(0.0, min(ANSWERS_SIGNALS_S, end_s - monotonic()))):
        if monotonic() >= end_s:
            return False
    return True
