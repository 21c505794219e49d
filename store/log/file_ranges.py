"""Ranges of a file: allocated blocks, holes, and zeros."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK_BYTES = 1 << 20
ZEROS = bytes(CHUNK_BYTES)


def allocate(descriptor: int, start: int, size: int) -> None:
    """Allocate blocks for the range; its data does not change. Raises OSError, with ENOSPC on a
    full disk."""
    os.posix_fallocate(descriptor, start, size)


def write_all(descriptor: int, data: bytes, position: int) -> None:
    while data:
        written = os.pwrite(descriptor, data, position)
        data = data[written:]
        position += written


def data_ranges(descriptor: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of start..end that may have non-zero bytes, ascending."""
    while start < end:
        try:
            data = os.lseek(descriptor, start, os.SEEK_DATA)
            hole = os.lseek(descriptor, data, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole from here on
                return
            if error.errno != errno.EINVAL:
                raise
            data, hole = start, end  # the file system cannot tell: look at everything
        if data >= end:
            return
        yield data, min(hole, end)
        start = hole


def not_zero(descriptor: int, start: int, end: int) -> Iterator[tuple[int, int, bytes]]:
    """Yield position, size and bytes of each piece of start..end that is not all zeros,
    ascending."""
    for position in range(start, end, CHUNK_BYTES):
        size = min(CHUNK_BYTES, end - position)
        data = os.pread(descriptor, size, position)
        if data != ZEROS[:size]:
            yield position, size, data


def zero_out(descriptor: int, start: int, end: int, changed: list[int]) -> None:
    """Overwrite everything that is not zero with zeros. It reads first, so that clean pages stay
    clean.

    `changed` is called with the positions written.
    """
    for position, size, data in not_zero(descriptor, start, end):
        changed.append(position + len(data) - len(data.lstrip(b"\0")))
        write_all(descriptor, ZEROS[:size], position)
