"""A small JSON file whose last line is the CRC-32, in hex, of everything before."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any

from store.base import write_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class ChecksumError(ValueError):
    """The last line is not the checksum of the lines before it."""


def read_checked(path: Path) -> dict[str, Any] | None:
    """The content of the file; None if it does not exist. Raises ChecksumError."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    body, _, checksum = data.rstrip(b"\n").rpartition(b"\n")
    if f"{zlib.crc32(body):08x}".encode() != checksum:
        raise ChecksumError(f"{path}: its checksum does not match")
    document: dict[str, Any] = json.loads(body)
    return document


def write_checked(path: Path, document: Mapping[str, object]) -> None:
    """Replace the file with `document`, durably. After a crash it has the new or the old content.
    Raises OSError; then the file is unchanged."""
    body = json.dumps(document).encode()
    write_file(path, body + f"\n{zlib.crc32(body):08x}\n".encode())
