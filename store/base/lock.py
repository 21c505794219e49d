"""A lock that an exception of a signal handler never leaves held.

Up to Python 3.13 `with` on a `threading.Lock` is that: taking it and beginning the block is one
step, and handlers run between steps. From 3.14 on taking it is a call, behind which a handler may
run before the block has begun, and nothing releases what was taken.

Callers: `with lock:`, and `acquire`, `release` and `locked` as of `threading.Lock`.
"""

import sys

if sys.version_info < (3, 14):
    from threading import Lock
else:
    import threading

    class Lock:
        """Taken by the step of a loop, behind which no handler runs, nor on the way back."""

        __slots__ = ("__exit__", "_takes", "acquire", "locked", "release")

        def __init__(self) -> None:
            lock = threading.Lock()
            self.acquire, self.release, self.locked = lock.acquire, lock.release, lock.locked
            self.__exit__ = lock.__exit__  # of C: one in Python could be interrupted at its start
            self._takes = iter(lock.acquire, None)  # which never returns None

        def __enter__(self) -> None:
            for _ in self._takes:
                return


__all__ = ["Lock"]
