"""How the file of a segment comes into being: whole or not at all, in place of no other."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, NoReturn

import pytest

from store.errors import DiskFullError, StoreFormatError
from store.log.segment import Segment, segment_name
from tests.store.log.test_segment import SIZE, allocated, no_space

if TYPE_CHECKING:
    from pathlib import Path


def test_new_segment_has_length_blocks_and_zeros(tmp_path: Path) -> None:
    path = tmp_path / segment_name(0)
    segment = Segment.create(path, 0, SIZE)
    assert path.stat().st_size == SIZE
    assert allocated(path) >= SIZE
    assert path.read_bytes() == bytes(SIZE)
    assert (segment.appended, segment.flushed) == (0, 0)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    segment.close()


def test_full_disk_is_an_error_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "posix_fallocate", no_space)
    with pytest.raises(DiskFullError, match=segment_name(0)):
        Segment.create(tmp_path / segment_name(0), 0, SIZE)
    assert list(tmp_path.iterdir()) == []


def test_other_failures_of_creation_leave_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: int) -> NoReturn:
        raise OSError(errno.EIO, "planted")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="planted"):
        Segment.create(tmp_path / segment_name(0), 0, SIZE)
    assert list(tmp_path.iterdir()) == []


def test_name_appears_only_when_the_file_is_complete_and_fsynced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each step that a crash may follow, the name is either absent or good."""
    path = tmp_path / segment_name(0)
    steps: list[str] = []
    fallocate, fsync = os.posix_fallocate, os.fsync

    def watched_fallocate(descriptor: int, start: int, size: int) -> None:
        assert not path.exists()
        steps.append("allocate")
        fallocate(descriptor, start, size)

    def watched_fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            assert path.stat().st_size == SIZE
            steps.append("fsync directory")
        else:
            assert not path.exists()
            steps.append("fsync file")
        fsync(descriptor)

    monkeypatch.setattr(os, "posix_fallocate", watched_fallocate)
    monkeypatch.setattr(os, "fsync", watched_fsync)
    Segment.create(path, 0, SIZE).close()
    assert steps == ["allocate", "fsync file", "fsync directory"]


def test_leftover_of_a_crash_is_replaced(tmp_path: Path) -> None:
    (tmp_path / f"{segment_name(0)}.tmp").write_bytes(b"half")
    segment = Segment.create(tmp_path / segment_name(0), 0, SIZE)
    segment.close()
    assert [entry.name for entry in tmp_path.iterdir()] == [segment_name(0)]


def test_creation_never_replaces_a_segment(tmp_path: Path) -> None:
    path = tmp_path / segment_name(0)
    path.write_bytes(b"precious")
    with pytest.raises(StoreFormatError, match="already exists"):
        Segment.create(path, 0, SIZE)
    assert path.read_bytes() == b"precious"
