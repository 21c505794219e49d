"""Memory of the process as glibc's allocator holds it: how much, and how it is given back."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctypes import CDLL

# Of glibc's malloc.h. Blocks from 8 MiB on are returned to the system as soon as they are freed.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_MAPPED_BYTES = 8 << 20
#: Of smaller ones so much is kept. With the other threshold set this one is 128 KiB: each response
#: would be made in memory that the system has to clear first.
_KEPT_BYTES = 64 << 20

_STATM = Path("/proc/self/statm")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def private_bytes(process: int | None = None) -> int:
    """Memory of the process that is in no file: what it allocated. 0 where nobody can tell.

    The commit log is mapped, and counts as resident; its pages are the system's cache. `process`
    is a number; None: this one.
    """
    statm = _STATM if process is None else Path(f"/proc/{process}/statm")
    try:
        _, resident, shared, *_ = statm.read_bytes().split()
    except OSError:
        return 0
    return (int(resident) - int(shared)) * _PAGE_BYTES


def tune_allocator() -> None:
    """Keep what is freed in few places, where the next request finds it. For a process's `main`.

    glibc has eight arenas for each core otherwise, and each keeps the most that it ever held.
    """
    with suppress(OSError, AttributeError):
        libc = _libc()
        libc.mallopt(_M_ARENA_MAX, 2)
        libc.mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def give_back() -> None:
    """Return free memory of the allocator to the system, where it can."""
    with suppress(OSError, AttributeError):
        _libc().malloc_trim(0)


def _libc() -> CDLL:
    # Not before standard streams are open: with one of them closed, the dynamic linker of glibc
    # 2.43 opens what this is linked with under its number, and leaves it open.
    import ctypes

    return ctypes.CDLL(None)
