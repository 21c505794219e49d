"""A lock that is never left held when a signal handler raises.

Up to Python 3.13, `with` on a `threading.Lock` guarantees this: acquiring the lock and entering the
block are one step, and handlers only run between steps. From 3.14 on, acquiring it is a call. A
handler may run after the call and before the block begins, and then nothing releases the lock.

Use `with lock:`, or `acquire`, `release` and `locked` as with `threading.Lock`.
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
            # A function in C, because one in Python could be interrupted at its start.
            self.__exit__ = lock.__exit__
            self._takes = iter(lock.acquire, None)  # which never returns None

        def __enter__(self) -> None:
            for _ in self._takes:
                return


__all__ = ["Lock"]
