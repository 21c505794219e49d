"""Files are replaced as a whole, and directory entries are fsynced."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, NoReturn

import pytest

from store.base import make_directory, write_file

if TYPE_CHECKING:
    from pathlib import Path


def test_written_file_is_fsynced_before_its_name_and_the_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    steps: list[tuple[str, bytes]] = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        kind = "directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        steps.append((kind, path.read_bytes()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    write_file(path, b"new")
    assert steps == [("file", b"old"), ("directory", b"new")]
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def broken(_: int) -> NoReturn:
        raise OSError(errno.ENOSPC, "planted")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="planted"):
        write_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_every_new_parent_gets_a_durable_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    make_directory(tmp_path / "a" / "b")
    assert synced == [tmp_path.stat().st_ino, (tmp_path / "a").stat().st_ino]
    make_directory(tmp_path / "a" / "b")
