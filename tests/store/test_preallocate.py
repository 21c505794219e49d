"""Segments prepared ahead: ready when taken, removed when not, errors told to who needs them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from store.errors import DiskFullError, StoreBusyError, StoreClosedError
from store.preallocate import Preallocator
from store.segment import Segment, segment_name
from store.segment_set import DirectSource, SegmentSet

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SIZE = 8192


class Source:
    """Real segments; tells of each, and fails or waits when the test says so."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.asked: list[tuple[int, str]] = []
        self.full = False
        self.made = threading.Condition()
        self.gate = threading.Event()
        self.gate.set()

    def take(self, start_offset: int) -> Segment:
        assert self.gate.wait(60)
        with self.made:
            self.asked.append((start_offset, threading.current_thread().name))
            self.made.notify_all()
        if self.full:
            raise DiskFullError("planted")
        path = self.directory / segment_name(start_offset)
        return Segment.create(path, start_offset, SIZE)

    def stop(self) -> None:
        pass

    def wait_asked(self, count: int) -> None:
        with self.made:
            assert self.made.wait_for(lambda: len(self.asked) >= count, 60)


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(tmp_path)


@pytest.fixture
def service(source: Source) -> Iterator[Preallocator]:
    made = Preallocator(source, SIZE)
    made.start()
    yield made
    source.gate.set()
    made.stop()


def names(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir())


def test_next_two_are_prepared_by_the_service_thread(service: Preallocator, source: Source) -> None:
    segment = service.take(0)
    source.wait_asked(3)
    assert segment.start_offset == 0
    assert source.asked == [(k * SIZE, "preallocate") for k in range(3)]
    segment.close()


def test_a_prepared_segment_is_handed_out_without_the_source(
    service: Preallocator, source: Source
) -> None:
    service.take(0).close()
    source.wait_asked(3)
    with service._changed:
        assert service._changed.wait_for(lambda: len(service._ready) == 2, 60)
    source.gate.clear()  # nothing more can be made
    service.take(SIZE).close()
    service.take(2 * SIZE).close()


def test_stop_removes_what_nobody_took(
    service: Preallocator, source: Source, tmp_path: Path
) -> None:
    segment = service.take(0)
    source.wait_asked(3)
    service.stop()
    service.stop()
    assert names(tmp_path) == [segment_name(0)]
    with pytest.raises(StoreClosedError):
        service.take(SIZE)
    segment.close()


def test_full_disk_ahead_hurts_nobody_until_the_segment_is_needed(
    service: Preallocator, source: Source
) -> None:
    service.prepare(0)
    source.wait_asked(2)
    with service._changed:
        assert service._changed.wait_for(lambda: len(service._ready) == 2, 60)
    source.full = True
    service.take(0).close()
    source.wait_asked(3)
    with service._changed:
        assert service._changed.wait_for(lambda: 2 * SIZE in service._failed, 60)
    service.take(SIZE).close()
    with pytest.raises(DiskFullError, match="planted"):
        service.take(2 * SIZE)
    with pytest.raises(DiskFullError, match="planted"):  # tried again, full still
        service.take(2 * SIZE)


def test_a_disk_that_was_full_refuses_nothing_once_it_has_space(
    service: Preallocator, source: Source
) -> None:
    source.full = True
    service.prepare(0)
    with service._changed:
        assert service._changed.wait_for(lambda: 0 in service._failed, 60)
    assert [start for start, _ in source.asked] == [0]  # nothing behind a gap
    source.full = False
    service.take(0).close()


def test_a_slow_disk_is_answered_with_busy_and_the_segment_comes_later(tmp_path: Path) -> None:
    source = Source(tmp_path)
    service = Preallocator(source, SIZE, timeout_s=0)
    service.start()
    source.gate.clear()
    with pytest.raises(StoreBusyError, match="not ready"):
        service.take(0)
    source.gate.set()
    with service._changed:
        assert service._changed.wait_for(lambda: 0 in service._ready, 60)
    service.take(0).close()
    service.stop()


def test_before_start_segments_are_made_on_the_spot(tmp_path: Path, source: Source) -> None:
    service = Preallocator(source, SIZE)
    service.take(0).close()
    assert source.asked == [(0, threading.current_thread().name)]
    service.stop()


def test_what_a_crash_leaves_prepared_is_cut_off_by_the_next_recovery(tmp_path: Path) -> None:
    service = Preallocator(DirectSource(tmp_path, SIZE), SIZE)
    service.start()
    segments = SegmentSet.load(tmp_path, SIZE, service)
    segments.roll().append(b"record")
    with service._changed:
        assert service._changed.wait_for(lambda: len(service._ready) == 2, 60)
    assert len(names(tmp_path)) == 3
    # The process dies here: nothing is closed, the files stay.
    again = SegmentSet.load(tmp_path, SIZE)
    assert len(again) == 3
    assert again.end_offset == 3 * SIZE
    again.truncate(6)
    assert names(tmp_path) == [segment_name(0)]
    assert again.last is not None
    assert again.last.read(0, 6) == b"record"
    again.close()
    segments.close()
