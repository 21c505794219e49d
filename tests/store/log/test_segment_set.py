"""The segments of a log: no gaps, found by arithmetic, cut and dropped in a safe order."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.errors import DiskFullError, InvalidArgumentError, StoreClosedError, StoreFormatError
from store.log.segment import Segment, segment_name
from store.log.segment_set import SegmentSet, SegmentSource

SIZE = 8192


def names(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir())


def filled(directory: Path, count: int) -> SegmentSet:
    """A set of `count` segments; byte k of the log is k mod 251, the last segment half full."""
    segments = SegmentSet.load(directory, SIZE)
    for number in range(count):
        segment = segments.roll()
        size = SIZE if number < count - 1 else SIZE // 2
        start = segment.start_offset
        segment.append(bytes((start + k) % 251 for k in range(size)))
    return segments


def test_empty_directory_is_an_empty_log(tmp_path: Path) -> None:
    segments = SegmentSet.load(tmp_path / "commitlog", SIZE)
    assert (segments.first_offset, segments.end_offset, segments.last) == (0, 0, None)
    assert segments.find(0) is None
    assert segments.flush() == 0
    segments.truncate(0)
    segments.close()


def test_roll_follows_on_and_seals(tmp_path: Path) -> None:
    segments = SegmentSet.load(tmp_path, SIZE)
    first = segments.roll()
    first.append(b"abc")
    assert segments.end_offset == 3
    second = segments.roll()
    assert second.start_offset == SIZE
    assert not first.writable
    assert segments.end_offset == SIZE
    assert segments.last is second
    assert names(tmp_path) == [segment_name(0), segment_name(SIZE)]
    segments.close()


def test_disk_full_at_roll_leaves_the_last_segment_in_use(tmp_path: Path) -> None:
    class FullSource(SegmentSource):
        full = False

        def take(self, start_offset: int, count: int = 1) -> Segment:
            if self.full:
                raise DiskFullError("planted")
            return super().take(start_offset, count)

    source = FullSource(tmp_path, SIZE)
    segments = SegmentSet.load(tmp_path, SIZE, source)
    last = segments.roll()
    source.full = True
    with pytest.raises(DiskFullError):
        segments.roll()
    assert segments.last is last
    last.append(b"still")
    source.full = False
    assert segments.roll().start_offset == SIZE
    segments.close()


@pytest.mark.parametrize("count", [1, 3])
def test_find_is_right_at_every_boundary(tmp_path: Path, count: int) -> None:
    segments = filled(tmp_path, count)
    for segment in segments:
        assert segments.find(segment.start_offset) is segment
        assert segments.find(segment.start_offset + SIZE - 1) is segment
    assert segments.find(-1) is None
    assert segments.find(count * SIZE) is None
    segments.close()


def test_find_goes_on_after_a_drop(tmp_path: Path) -> None:
    segments = filled(tmp_path, 3)
    segments.flush()
    dropped = segments.drop_first()
    assert segments.first_offset == SIZE
    assert segments.find(SIZE - 1) is None
    found = segments.find(SIZE)
    assert found is not None
    assert found.start_offset == SIZE
    with pytest.raises(StoreClosedError):
        dropped.read(0, 1)
    assert names(tmp_path) == [segment_name(SIZE), segment_name(2 * SIZE)]
    segments.close()


def test_the_last_segment_is_never_dropped(tmp_path: Path) -> None:
    segments = filled(tmp_path, 1)
    segments.flush()
    with pytest.raises(InvalidArgumentError):
        segments.drop_first()
    assert names(tmp_path) == [segment_name(0)]
    segments.close()


def test_a_segment_that_is_not_flushed_is_not_dropped(tmp_path: Path) -> None:
    segments = filled(tmp_path, 2)
    with pytest.raises(InvalidArgumentError, match="not flushed"):
        segments.drop_first()
    assert len(segments) == 2
    segments.close()


def test_a_list_held_by_a_reader_does_not_change(tmp_path: Path) -> None:
    segments = filled(tmp_path, 3)
    segments.flush()
    held = iter(segments)
    segments.drop_first()
    segments.roll()
    assert [segment.start_offset for segment in held] == [0, SIZE, 2 * SIZE]
    segments.close()


# --- loading -------------------------------------------------------------------------------


def test_reopened_log_has_the_same_bytes(tmp_path: Path) -> None:
    segments = filled(tmp_path, 3)
    segments.close()
    again = SegmentSet.load(tmp_path, SIZE)
    data = b"".join(segment.read(0, SIZE) for segment in again)
    assert data[: 2 * SIZE + SIZE // 2] == bytes(k % 251 for k in range(2 * SIZE + SIZE // 2))
    assert data[2 * SIZE + SIZE // 2 :] == bytes(SIZE // 2)
    assert [segment.writable for segment in again] == [False, False, True]
    again.close()


def test_sub_directories_are_ignored(tmp_path: Path) -> None:
    filled(tmp_path, 1).close()
    (tmp_path / "lost+found").mkdir()
    segments = SegmentSet.load(tmp_path, SIZE)
    assert len(segments) == 1
    segments.close()


@pytest.mark.parametrize("name", ["README", "1", segment_name(0)[1:], "x.tmp"])
def test_foreign_files_are_refused_by_name(tmp_path: Path, name: str) -> None:
    filled(tmp_path, 1).close()
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(StoreFormatError, match="not a segment") as caught:
        SegmentSet.load(tmp_path, SIZE)
    assert caught.value.path.name == name
    assert (tmp_path / name).exists()


def test_gap_is_refused_with_the_missing_name(tmp_path: Path) -> None:
    filled(tmp_path, 3).close()
    (tmp_path / segment_name(SIZE)).unlink()
    with pytest.raises(StoreFormatError, match=f"segment {segment_name(SIZE)} is missing"):
        SegmentSet.load(tmp_path, SIZE)


def test_start_within_another_segment_is_refused(tmp_path: Path) -> None:
    filled(tmp_path, 2).close()
    (tmp_path / segment_name(SIZE)).rename(tmp_path / segment_name(SIZE // 2))
    with pytest.raises(StoreFormatError, match="multiple of the segment size"):
        SegmentSet.load(tmp_path, SIZE)


@pytest.mark.parametrize("length", [0, 100, SIZE - 1, SIZE + 1])
def test_wrong_length_of_an_earlier_segment_is_refused(tmp_path: Path, length: int) -> None:
    filled(tmp_path, 2).close()
    os.truncate(tmp_path / segment_name(0), length)
    with pytest.raises(StoreFormatError, match=f"has {length} bytes"):
        SegmentSet.load(tmp_path, SIZE)


def test_too_long_last_segment_is_refused(tmp_path: Path) -> None:
    filled(tmp_path, 2).close()
    os.truncate(tmp_path / segment_name(SIZE), SIZE + 1)
    with pytest.raises(StoreFormatError, match=f"has {SIZE + 1} bytes"):
        SegmentSet.load(tmp_path, SIZE)


@pytest.mark.parametrize("length", [0, 1, 4096, SIZE - 1])
def test_short_last_file_without_data_is_removed_and_reported(
    tmp_path: Path, length: int, caplog: pytest.LogCaptureFixture
) -> None:
    filled(tmp_path, 1).close()
    (tmp_path / segment_name(SIZE)).write_bytes(bytes(length))
    segments = SegmentSet.load(tmp_path, SIZE)
    assert len(segments) == 1
    assert names(tmp_path) == [segment_name(0)]
    assert segment_name(SIZE) in caplog.text
    segments.close()


def test_short_last_file_with_data_is_kept_and_refused(tmp_path: Path) -> None:
    filled(tmp_path, 2).close()
    os.truncate(tmp_path / segment_name(SIZE), 100)
    with pytest.raises(StoreFormatError, match="holds data but has 100 bytes"):
        SegmentSet.load(tmp_path, SIZE)
    assert (tmp_path / segment_name(SIZE)).stat().st_size == 100


def test_temporary_file_of_a_crash_is_removed(tmp_path: Path) -> None:
    filled(tmp_path, 1).close()
    (tmp_path / f"{segment_name(SIZE)}.tmp").write_bytes(b"anything")
    SegmentSet.load(tmp_path, SIZE).close()
    assert names(tmp_path) == [segment_name(0)]


def test_read_only_load_changes_nothing(tmp_path: Path) -> None:
    filled(tmp_path, 1).close()
    (tmp_path / segment_name(SIZE)).write_bytes(b"")
    (tmp_path / f"{segment_name(2 * SIZE)}.tmp").write_bytes(b"")
    before = names(tmp_path)
    segments = SegmentSet.load(tmp_path, SIZE, read_only=True)
    assert len(segments) == 1
    assert not next(iter(segments)).writable
    segments.close()
    assert names(tmp_path) == before


# --- cutting -------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(offset=st.one_of(st.sampled_from([0, SIZE, 2 * SIZE, 3 * SIZE]), st.integers(0, 3 * SIZE)))
def test_nothing_above_a_cut_comes_back(
    tmp_path_factory: pytest.TempPathFactory, offset: int
) -> None:
    directory = tmp_path_factory.mktemp("log")
    filled(directory, 3).close()
    segments = SegmentSet.load(directory, SIZE)
    segments.truncate(offset)
    assert segments.end_offset == offset
    last = segments.last
    assert last is not None
    if offset < 3 * SIZE:
        assert segments.find(offset) is last
        assert last.writable
    segments.close()
    data = b"".join((directory / name).read_bytes() for name in names(directory))
    end = min(offset, 2 * SIZE + SIZE // 2)
    assert data[:end] == bytes(k % 251 for k in range(end))
    assert data[end:] == bytes(len(data) - end)


def test_cut_removes_the_last_segments_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a crash in the middle leaves a log without a gap."""
    filled(tmp_path, 4).close()
    segments = SegmentSet.load(tmp_path, SIZE)
    seen: list[list[str]] = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        seen.append(names(tmp_path))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    segments.truncate(100)
    assert [len(found) for found in seen] == [3, 2, 1, 1]
    assert all(found == sorted(found) and found[0] == segment_name(0) for found in seen)
    segments.close()


def test_cut_makes_durable_what_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed process may have left it in the page cache only."""
    filled(tmp_path, 3).close()
    segments = SegmentSet.load(tmp_path, SIZE)
    synced: set[str] = set()

    def watched(descriptor: int) -> None:
        synced.add(Path(f"/proc/self/fd/{descriptor}").readlink().name)

    monkeypatch.setattr(os, "fdatasync", watched)
    monkeypatch.setattr(os, "fsync", watched)
    segments.truncate(SIZE + 100)
    assert {segment_name(0), segment_name(SIZE)} <= synced
    segments.close()


def test_cut_outside_the_log_is_refused(tmp_path: Path) -> None:
    segments = filled(tmp_path, 2)
    segments.flush()
    segments.drop_first()
    for offset in (SIZE - 1, 2 * SIZE + 1):
        with pytest.raises(InvalidArgumentError):
            segments.truncate(offset)
    segments.close()


# --- flushing ------------------------------------------------------------------------------


def test_flush_covers_all_segments_oldest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments = filled(tmp_path, 3)
    synced: list[str] = []

    def watched(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)

    monkeypatch.setattr(os, "fdatasync", watched)
    assert segments.flush() == 2 * SIZE + SIZE // 2
    assert synced == [segment_name(k * SIZE) for k in range(3)]
    assert segments.flush() == 2 * SIZE + SIZE // 2
    assert len(synced) == 3
    segments.close()


def test_flush_waits_for_least_pages_but_not_for_full_segments(tmp_path: Path) -> None:
    segments = SegmentSet.load(tmp_path, 4 * 4096)
    segment = segments.roll()
    segment.append(bytes(3 * 4096 - 1))
    assert segments.flush(3) == 0
    segment.append(b"x")
    assert segments.flush(3) == 3 * 4096
    segments.roll()
    assert segments.flush(3) == 4 * 4096
    assert segment.flushed == segment.size
    segments.close()


def test_failed_flush_stops_at_the_first_segment_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments = filled(tmp_path, 3)
    calls: list[int] = []

    def second_fails(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 2:
            raise OSError(5, "planted")

    monkeypatch.setattr(os, "fdatasync", second_fails)
    with pytest.raises(OSError, match="planted"):
        segments.flush()
    assert [segment.flushed for segment in segments] == [SIZE, 0, 0]
    segments.close()


# --- crash images ----------------------------------------------------------------------------


@pytest.mark.crash
def test_every_crash_image_of_a_roll_loads_with_the_old_log_or_with_one_more_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image is taken before each step on files. The new file may be cut anywhere in it."""
    directory, images = tmp_path / "log", tmp_path / "images"
    segments = filled(directory, 1)
    segments.flush()

    def image(*cuts: int) -> None:
        for cut in (SIZE, *cuts):
            copy = images / str(len(list(images.iterdir())))
            shutil.copytree(directory, copy)
            fresh = copy / f"{segment_name(SIZE)}.tmp"
            if fresh.exists() and cut < fresh.stat().st_size:
                os.truncate(fresh, cut)

    def watch(owner: object, name: str) -> None:
        plain = getattr(owner, name)

        def watched(*arguments: object) -> object:
            image(0, 1, 4096)
            return plain(*arguments)

        monkeypatch.setattr(owner, name, watched)

    images.mkdir()
    for name in ("posix_fallocate", "fsync"):
        watch(os, name)
    watch(Path, "rename")
    segments.roll()
    monkeypatch.undo()
    image()
    segments.close()

    counts = []
    for copy in images.iterdir():
        again = SegmentSet.load(copy, SIZE)
        counts.append(len(again))
        again.truncate(SIZE // 2)
        assert names(copy) == [segment_name(0)]
        assert again.last is not None
        assert again.last.read(0, SIZE // 2) == bytes(k % 251 for k in range(SIZE // 2))
        again.close()
    assert set(counts) == {1, 2}
    assert len(counts) >= 10
