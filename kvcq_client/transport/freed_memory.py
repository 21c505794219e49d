"""What is freed is kept for the next response, in a process that asks for it.

A response is hundreds of kilobytes: gRPC's slices, the message made of them, its records. glibc
gives such memory back to the system with each response, as soon as it is freed, and fetches it
again for the next one, page by page, each of which the system clears first. On a virtual machine
whose host has to find those pages that takes as long as all the rest of a pull.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

# Of glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
#: Blocks from here on are the system's again as soon as they are freed.
_MAPPED_BYTES = 8 << 20
#: Of smaller ones so much is kept. With the other threshold set this one is 128 KiB if it is not.
_KEPT_BYTES = 64 << 20
#: What a user sets to have it otherwise.
_THEIRS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_")


def keep_freed_memory() -> None:
    """The allocator of this process keeps up to 64 MiB of freed memory. Repeatable.

    For a program that reads much: a pull of 1 MiB takes half the time. It is a setting of the whole
    process (glibc's mallopt), so no client makes it on its own. Nothing is changed where the
    environment has settings of glibc's allocator, or where the allocator is another one.
    """
    if "glibc.malloc." in os.environ.get("GLIBC_TUNABLES", ""):
        return
    if any(name in os.environ for name in _THEIRS):
        return
    with suppress(OSError, AttributeError, TypeError):  # not glibc; TypeError: not POSIX either
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
