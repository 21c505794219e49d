"""What was written is read, or refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from migration.formats.checked_json import ChecksumError, read_checked, write_checked

if TYPE_CHECKING:
    from pathlib import Path

DOCUMENT = {"version": 1, "names": ["a", "b\n"], "none": None}


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert read_checked(path) is None
    write_checked(path, DOCUMENT)
    assert read_checked(path) == DOCUMENT


def test_any_flipped_bit_and_every_cut_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_checked(path, DOCUMENT)
    sound = path.read_bytes()
    for position in range(len(sound) - 1):  # the last byte is a line's end
        for bit in range(8):
            damaged = bytearray(sound)
            damaged[position] ^= 1 << bit
            path.write_bytes(damaged)
            with pytest.raises(ChecksumError):
                read_checked(path)
    for length in range(len(sound) - 1):
        path.write_bytes(sound[:length])
        with pytest.raises(ChecksumError):
            read_checked(path)
