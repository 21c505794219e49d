"""A flag that one thread waits for, and that an interrupt of whoever raises it does not break."""

from __future__ import annotations

import contextlib
import threading


class Wake:
    """Raised by any thread, any number of times; one thread waits for it and takes it down.

    threading.Event would do, but for Ctrl-C: its lock is entered and left by Python code, and an
    exception of a signal handler in between leaves it held for ever. Here raising the flag is one
    call into C.
    """

    def __init__(self) -> None:
        self._down = threading.Lock()  # held while the flag is down
        self._down.acquire()

    def set(self) -> None:
        """Raise the flag."""
        if self._down.locked():
            with contextlib.suppress(RuntimeError):  # raised by another thread in between
                self._down.release()

    def wait(self, timeout_s: float = -1) -> None:
        """Until the flag is up, or for so long; it is down on return. -1: for ever."""
        self._down.acquire(timeout=timeout_s)
