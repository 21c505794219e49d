"""A flag for one waiting thread; an interrupt of the thread that raises it is safe."""

from __future__ import annotations

import contextlib
import threading


class Wake:
    """Any thread may set the flag, any number of times; one thread waits for it and clears it.

    threading.Event would do, but for Ctrl-C: it acquires and releases its lock in Python code, so a
    signal handler that raises in between leaves it held forever. Here setting the flag is a single
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
        """Block until the flag is set, or for `timeout_s` seconds (-1: without limit), then clear
        it."""
        self._down.acquire(timeout=timeout_s)
