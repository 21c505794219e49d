"""Stores that are kept packed beside the tests."""

from __future__ import annotations

import functools
import os
import tarfile
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path


class Packed(NamedTuple):
    """A file or a directory of an archive."""

    name: str
    mode: int
    time_s: float
    data: bytes | None  # None: a directory


def unpack(archive: Path, into: Path) -> None:
    """What lies in the archive. It is read once by a process: all but a few ms of unpacking it."""
    for each in _read(archive):
        path = into / each.name
        if each.data is None:
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(each.data)
        path.chmod(each.mode)
        os.utime(path, (each.time_s, each.time_s))


@functools.cache
def _read(archive: Path) -> list[Packed]:
    found = []
    with tarfile.open(archive) as packed:
        for member in packed:
            assert member.isfile() or member.isdir(), member.name
            file = packed.extractfile(member)
            data = None if file is None else file.read()
            found.append(Packed(member.name, member.mode & 0o755, member.mtime, data))
    return found
