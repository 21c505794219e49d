"""Ranges of a file: their blocks, their holes, and the zeros in them."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK_BYTES = 1 << 20
ZEROS = bytes(CHUNK_BYTES)


def allocate(descriptor: int, start: int, size: int) -> None:
    """Blocks for the range, whatever data is there. Raises OSError, ENOSPC on a full disk."""
    os.posix_fallocate(descriptor, start, size)


def write_all(descriptor: int, data: bytes, position: int) -> None:
    while data:
        written = os.pwrite(descriptor, data, position)
        data = data[written:]
        position += written


def data_ranges(descriptor: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Ranges of start..end that may hold other bytes than zeros, rising."""
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
    """Position, size and bytes of each piece of start..end that is not all zeros, rising."""
    for position in range(start, end, CHUNK_BYTES):
        size = min(CHUNK_BYTES, end - position)
        data = os.pread(descriptor, size, position)
        if data != ZEROS[:size]:
            yield position, size, data


def zero_out(descriptor: int, start: int, end: int, changed: list[int]) -> None:
    """Write zeros over what is not zero; reading first keeps clean pages clean.

    `changed` gets the positions of what was written.
    """
    for position, size, data in not_zero(descriptor, start, end):
        changed.append(position + len(data) - len(data.lstrip(b"\0")))
        write_all(descriptor, ZEROS[:size], position)
