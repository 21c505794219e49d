"""One segment: whole or not there, read within bounds, cut clean, durable when flushed."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING, NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.errors import DiskFullError, InvalidArgumentError, StoreClosedError, StoreFormatError
from store.log.segment import (
    SMALL_FLUSH_BYTES,
    WRITTEN_BYTES,
    ZEROED_BYTES,
    Segment,
    parse_segment_name,
    segment_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SIZE = 64 << 10


@pytest.fixture
def segment(tmp_path: Path) -> Iterator[Segment]:
    made = Segment.create(tmp_path / segment_name(0), 0, SIZE)
    yield made
    made.close()


def allocated(path: Path) -> int:
    return path.stat().st_blocks * 512


def no_space(*_: object) -> NoReturn:
    raise OSError(errno.ENOSPC, "planted: no space")


@given(st.integers(0, 10**20 - 1), st.integers(0, 10**20 - 1))
def test_names_read_back_and_sort_as_offsets(one: int, other: int) -> None:
    assert parse_segment_name(segment_name(one)) == one
    assert (segment_name(one) < segment_name(other)) == (one < other)


def test_name_of_the_second_default_segment() -> None:
    assert segment_name(1 << 30) == "00000000001073741824"


@pytest.mark.parametrize("name", ["", "1", "0" * 19, "0" * 21, "0" * 19 + "x", "²" * 20])
def test_other_names_are_not_segments(name: str) -> None:
    assert parse_segment_name(name) is None


# --- appending and reading -----------------------------------------------------------------


def test_append_returns_the_position_and_is_read_back(segment: Segment) -> None:
    assert segment.append(b"one") == 0
    assert segment.append(bytearray(b"two")) == 3
    assert segment.append(memoryview(b"three")) == 6
    assert segment.appended == 11
    for reader in (segment.read, segment.pread, lambda at, size: bytes(segment.view(at, size))):
        assert reader(3, 8) == b"twothree"
        assert reader(11, 0) == b""


@pytest.mark.parametrize(("position", "size"), [(0, 12), (11, 1), (-1, 2), (2, -1), (1 << 40, 1)])
def test_reads_outside_what_is_appended_are_refused(
    segment: Segment, position: int, size: int
) -> None:
    segment.append(b"hello world")
    for reader in (segment.read, segment.pread, segment.view):
        with pytest.raises(InvalidArgumentError):
            reader(position, size)


@given(st.lists(st.integers(1, 3 * WRITTEN_BYTES), max_size=6))
@settings(max_examples=25)
def test_long_appends_and_short_ones_give_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int]
) -> None:
    data = b"".join(bytes([at + 1]) * size for at, size in enumerate(sizes))
    path = tmp_path_factory.mktemp("log") / segment_name(0)
    segment = Segment.create(path, 0, 1 << 20)
    with contextlib.closing(segment):
        position = 0
        for size in sizes:
            assert segment.append(data[position : position + size]) == position
            position += size
        assert segment.read(0, position) == segment.pread(0, position) == data
        assert segment.copied == sum(size for size in sizes if size < WRITTEN_BYTES)
        assert path.read_bytes() == data + bytes((1 << 20) - position)


@given(st.lists(st.tuples(st.integers(1, 2 * ZEROED_BYTES), st.booleans()), max_size=8))
@settings(max_examples=25)
def test_flushes_between_appends_change_no_byte(
    tmp_path_factory: pytest.TempPathFactory, appends: list[tuple[int, bool]]
) -> None:
    path = tmp_path_factory.mktemp("log") / segment_name(0)
    size = 2 * ZEROED_BYTES * 8
    segment = Segment.create(path, 0, size)
    with contextlib.closing(segment):
        data = b""
        for at, (length, is_flushed) in enumerate(appends):
            data += bytes([at + 1]) * length
            segment.append(data[segment.appended :])
            if is_flushed:
                segment.flush()
        assert path.read_bytes() == data + bytes(size - len(data))


def test_behind_small_flushes_appends_go_through_the_file_and_zeros_ahead_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[tuple[int, int]] = []
    real = os.pwrite

    def pwrite(descriptor: int, data: bytes, position: int) -> int:
        written.append((position, len(data)))
        return real(descriptor, data, position)

    segment = Segment.create(tmp_path / segment_name(0), 0, 8 * SMALL_FLUSH_BYTES)
    monkeypatch.setattr(os, "pwrite", pwrite)
    with contextlib.closing(segment):
        segment.append(b"x" * 100)
        assert (written, segment.copied) == ([], 100)
        segment.flush()
        for _ in range(3):
            segment.append(b"x" * 100)
            segment.flush()
        # The zeros end with a page, and are there for all that fits into them.
        zeros = (200, 4096 + ZEROED_BYTES - 200)
        assert written == [zeros, (100, 100), (200, 100), (300, 100)]
        segment.append(b"x" * ZEROED_BYTES)
        assert written[-1] == (400, ZEROED_BYTES)
        segment.append(b"x" * 4096)
        first = 4096 + ZEROED_BYTES
        end = 400 + ZEROED_BYTES + 4096
        assert written[-2:] == [(end, first + 4096 + ZEROED_BYTES - end), (end - 4096, 4096)]
        assert segment.copied == 100
        segment.append(b"x" * SMALL_FLUSH_BYTES)
        segment.flush()  # a large one
        segment.append(b"x" * 100)
        assert segment.copied == 200


def test_zeros_ahead_end_with_the_segment(tmp_path: Path) -> None:
    path = tmp_path / segment_name(0)
    segment = Segment.create(path, 0, 8192)
    with contextlib.closing(segment):
        segment.append(b"a")
        segment.flush()
        segment.append(b"b")
        segment.append(b"c" * 8190)
        assert path.read_bytes() == b"ab" + b"c" * 8190


@pytest.mark.parametrize("taken", [None, 0, 4096])
def test_what_the_file_does_not_take_the_mapping_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: int | None
) -> None:
    segment = Segment.create(tmp_path / segment_name(0), 0, 2 * WRITTEN_BYTES)
    data = os.urandom(WRITTEN_BYTES)

    def pwrite(*_: object) -> int:
        return no_space() if taken is None else taken

    with contextlib.closing(segment):
        segment.append(b"before")
        monkeypatch.setattr(os, "pwrite", pwrite)
        assert segment.append(data) == 6
        assert segment.read(0, segment.appended) == b"before" + data


def test_append_past_the_end_changes_nothing(segment: Segment) -> None:
    segment.append(bytes(SIZE - 2))
    with pytest.raises(InvalidArgumentError):
        segment.append(b"abc")
    assert segment.appended == SIZE - 2
    segment.append(b"ab")
    assert segment.read(SIZE - 2, 2) == b"ab"


def test_a_disk_that_cannot_be_read_is_told_with_the_file(
    segment: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment.append(b"0123456789")

    def failing(*_: int) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "pread", failing)
    with pytest.raises(OSError, match="error, reading 4 bytes at 2") as told:
        segment.pread(2, 4)
    assert (told.value.errno, told.value.filename) == (errno.EIO, str(segment.path))


def test_bytes_patched_in_the_buffer_are_read_back(segment: Segment) -> None:
    segment.append(b"0123456789")
    segment.buffer[2:4] = b"xy"
    assert segment.read(0, 10) == b"01xy456789"
    assert segment.pread(0, 10) == b"01xy456789"


def test_sealed_segment_takes_no_append_and_counts_as_full(segment: Segment) -> None:
    segment.append(b"abc")
    segment.seal()
    assert not segment.writable
    with pytest.raises(InvalidArgumentError):
        segment.append(b"d")
    assert segment.appended == SIZE
    assert segment.read(0, 5) == b"abc\0\0"


# --- flushing ------------------------------------------------------------------------------


def test_flush_moves_the_flushed_position(
    segment: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    segment.append(b"abc")
    assert segment.flush() == 3
    assert segment.flushed == 3
    assert segment.flush() == 3
    assert len(synced) == 1  # nothing new, no second one


def test_what_comes_during_a_flush_does_not_count_as_flushed(
    segment: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fdatasync", lambda _: segment.append(b"late"))
    segment.append(b"abc")
    assert segment.flush() == 3
    assert (segment.flushed, segment.appended) == (3, 7)


def test_failed_flush_moves_nothing(segment: Segment, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: int) -> NoReturn:
        raise OSError(errno.EIO, "planted")

    monkeypatch.setattr(os, "fdatasync", broken)
    segment.append(b"abc")
    with pytest.raises(OSError, match="planted"):
        segment.flush()
    assert segment.flushed == 0


# --- opening and cutting -------------------------------------------------------------------


def test_opened_segment_counts_as_full_until_it_is_cut(tmp_path: Path) -> None:
    path = tmp_path / segment_name(0)
    first = Segment.create(path, 0, SIZE)
    first.append(b"kept" + b"cut off")
    first.close()
    again = Segment.open(path, SIZE)
    assert (again.appended, again.flushed, again.writable) == (SIZE, SIZE, False)
    assert again.read(0, 11) == b"keptcut off"
    again.zero_from(4)
    assert (again.appended, again.flushed, again.writable) == (4, 4, True)
    assert again.append(b"new") == 4
    assert path.read_bytes() == b"keptnew" + bytes(SIZE - 7)
    again.close()


def test_reading_open_changes_nothing_on_disk(disk_path: Path) -> None:
    path = disk_path / segment_name(0)
    with path.open("wb") as file:
        file.truncate(SIZE)
    before = path.stat()
    segment = Segment.open(path, SIZE)
    segment.read(0, SIZE)
    with pytest.raises(InvalidArgumentError):
        segment.append(b"x")
    segment.close()
    after = path.stat()
    assert (after.st_mtime_ns, after.st_blocks) == (before.st_mtime_ns, before.st_blocks)


def test_sparse_file_gets_its_blocks_when_opened_for_writing(tmp_path: Path) -> None:
    path = tmp_path / segment_name(0)
    with path.open("wb") as file:
        file.truncate(SIZE)
    assert allocated(path) < SIZE
    Segment.open(path, SIZE, writable=True).close()
    assert allocated(path) >= SIZE


def test_full_disk_is_reported_for_a_sparse_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / segment_name(0)
    with path.open("wb") as file:
        file.truncate(SIZE)
    monkeypatch.setattr(os, "posix_fallocate", no_space)
    with pytest.raises(DiskFullError):
        Segment.open(path, SIZE, writable=True)
    segment = Segment.open(path, SIZE)
    with pytest.raises(DiskFullError):
        segment.zero_from(0)
    segment.close()


@pytest.mark.parametrize("length", [0, 1, SIZE - 1, SIZE + 1])
def test_wrong_length_is_refused_with_both_lengths(tmp_path: Path, length: int) -> None:
    path = tmp_path / segment_name(0)
    path.write_bytes(bytes(length))
    with pytest.raises(StoreFormatError, match=f"has {length} bytes, a segment here has {SIZE}"):
        Segment.open(path, SIZE)


@pytest.mark.parametrize("cut", [0, 1, 4095, 4096, 20_000, SIZE - 1, SIZE])
@pytest.mark.parametrize("sparse", [False, True])
def test_cut_leaves_zeros_with_blocks_behind_it(tmp_path: Path, cut: int, sparse: bool) -> None:
    path = tmp_path / segment_name(0)
    content = bytearray(os.urandom(SIZE))
    if sparse:
        content[8192:] = bytes(SIZE - 8192)
        content[40_000] = 7  # data between holes
    with path.open("wb") as file:
        if sparse:
            file.write(content[:8192])
            file.seek(40_000)
            file.write(b"\x07")
            file.truncate(SIZE)
        else:
            file.write(content)
    segment = Segment.open(path, SIZE)
    segment.zero_from(cut)
    segment.close()
    assert path.read_bytes() == bytes(content[:cut]) + bytes(SIZE - cut)
    if not sparse:
        assert allocated(path) >= SIZE


def test_cut_removes_bytes_still_in_the_mapping_only(segment: Segment) -> None:
    segment.append(b"x" * 30_000)
    segment.buffer[50_000:50_003] = b"abc"  # beyond what is appended
    segment.zero_from(10_000)
    assert segment.pread(0, 10_000) == b"x" * 10_000
    assert segment.buffer[10_000:SIZE] == bytes(SIZE - 10_000)
    assert segment.appended == 10_000


@pytest.mark.parametrize("position", [-1, SIZE + 1])
def test_cut_outside_the_segment_is_refused(segment: Segment, position: int) -> None:
    with pytest.raises(InvalidArgumentError):
        segment.zero_from(position)


# --- closing -------------------------------------------------------------------------------


def test_everything_after_close_says_so(segment: Segment) -> None:
    segment.append(b"abc")
    segment.close()
    segment.close()
    segment.flushed = 0
    for call in (
        lambda: segment.read(0, 1),
        lambda: segment.pread(0, 1),
        lambda: segment.view(0, 1),
        lambda: segment.append(b"x"),
        lambda: segment.flush(),
        lambda: segment.zero_from(0),
    ):
        with pytest.raises(StoreClosedError):
            call()


def test_views_outlive_the_close(segment: Segment) -> None:
    segment.append(b"abc")
    view = segment.view(0, 3)
    assert view.readonly
    segment.close()
    assert bytes(view) == b"abc"
    with pytest.raises(StoreClosedError):
        segment.read(0, 1)
    view.release()


def test_close_during_a_pread_waits_for_the_descriptor(
    segment: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A descriptor number is reused at once: closed too early, the read would hit another file."""
    segment.append(b"abc")
    pread = os.pread
    inside: list[int] = []

    def closing(descriptor: int, size: int, position: int) -> bytes:
        segment.close()
        inside.append(descriptor)
        return pread(descriptor, size, position)

    monkeypatch.setattr(os, "pread", closing)
    assert segment.pread(0, 3) == b"abc"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(inside[0])


def test_short_file_under_a_reader_is_an_error(segment: Segment) -> None:
    segment.append(b"x" * SIZE)
    os.truncate(segment.path, 100)
    with pytest.raises(StoreFormatError, match="ends within"):
        segment.pread(0, SIZE)
    os.truncate(segment.path, SIZE)


def test_destroy_removes_the_file(segment: Segment) -> None:
    segment.destroy()
    assert not segment.path.exists()
    segment.destroy()
