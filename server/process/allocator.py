"""Memory of the process as seen by glibc's allocator, and how to return it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctypes import CDLL

# From glibc's malloc.h. Blocks of 8 MiB or more are returned to the system as soon as they are
# freed.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_MAPPED_BYTES = 8 << 20
#: This much free memory is kept of smaller blocks. When the other threshold is set, this one would
#: be 128 KiB, and each response would be built in memory that the system has to clear first.
_KEPT_BYTES = 64 << 20

_STATM = Path("/proc/self/statm")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def private_bytes(process: int | None = None) -> int:
    """Private memory of the process in bytes, which no file backs. 0 if unknown.

    The mapped commit log counts as resident memory, but its pages are the system's cache.
    `process`: a pid; None for this one.
    """
    statm = _STATM if process is None else Path(f"/proc/{process}/statm")
    try:
        _, resident, shared, *_ = statm.read_bytes().split()
    except OSError:
        return 0
    return (int(resident) - int(shared)) * _PAGE_BYTES


def tune_allocator() -> None:
    """Keep freed memory in few places, where the next request finds it. For a process's `main`.

    Otherwise glibc has eight arenas for each core, and each keeps its peak size.
    """
    with suppress(OSError, AttributeError):
        libc = _libc()
        libc.mallopt(_M_ARENA_MAX, 2)
        libc.mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def give_back() -> None:
    """Return the allocator's free memory to the system, where possible."""
    with suppress(OSError, AttributeError):
        _libc().malloc_trim(0)


def _libc() -> CDLL:
    # Not before standard streams are open: with one of them closed, the dynamic linker of glibc
    # 2.43 opens what this is linked with under its number, and leaves it open.
    import ctypes

    return ctypes.CDLL(None)
