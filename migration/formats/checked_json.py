"""A small JSON file that ends with a line of its checksum: the CRC-32 of what is before, in hex."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any

from store.base import write_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class ChecksumError(ValueError):
    """The last line is not the checksum of those before."""


def read_checked(path: Path) -> dict[str, Any] | None:
    """What the file holds; None when there is none. Raises ChecksumError."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    body, _, checksum = data.rstrip(b"\n").rpartition(b"\n")
    if f"{zlib.crc32(body):08x}".encode() != checksum:
        raise ChecksumError(f"{path}: its checksum does not fit")
    document: dict[str, Any] = json.loads(body)
    return document


def write_checked(path: Path, document: Mapping[str, object]) -> None:
    """The file holds `document`, durably; after a crash, that or what it held before.

    Raises OSError; the file is then unchanged.
    """
    body = json.dumps(document).encode()
    write_file(path, body + f"\n{zlib.crc32(body):08x}\n".encode())
