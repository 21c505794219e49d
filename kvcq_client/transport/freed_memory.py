"""Keeps freed memory for the next response, in a process that asks for it.

A response takes hundreds of kilobytes: gRPC's slices, the message, its records. By default glibc
returns such blocks to the system when they are freed, and the next response page-faults them in
again. On a virtual machine that takes about as long as the rest of a pull.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

# From glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
#: Blocks of at least this size are returned to the system when freed.
_MAPPED_BYTES = 8 << 20
#: This much free memory of smaller blocks is kept. If only the other threshold is set, this one
#: becomes 128 KiB.
_KEPT_BYTES = 64 << 20
#: Environment variables with the user's own settings.
_THEIRS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_")


def keep_freed_memory() -> None:
    """Make the allocator of this process keep up to 64 MiB of freed memory. Repeatable.

    For programs that read a lot: a pull of 1 MiB takes half the time. This is a setting of the
    whole process (glibc's mallopt), so the client never makes it on its own. Does nothing if the
    environment configures glibc's allocator, or with another allocator.
    """
    if "glibc.malloc." in os.environ.get("GLIBC_TUNABLES", ""):
        return
    if any(name in os.environ for name in _THEIRS):
        return
    with suppress(OSError, AttributeError, TypeError):  # not glibc; TypeError: not POSIX either
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
