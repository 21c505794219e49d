"""Segments prepared ahead: ready when taken, removed when not, errors told to who needs them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from store.errors import DiskFullError, SegmentNotReadyError, StoreBusyError, StoreClosedError
from store.log.preallocate import Preallocator, segments_ahead
from store.log.segment import segment_name
from store.log.segment_set import SegmentSet, SegmentSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from store.log.segment import Segment

SIZE = 8192


class Source(SegmentSource):
    """Real segments; tells of each, and fails or waits when the test says so."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, SIZE)
        self.asked: list[tuple[int, str]] = []
        self.full = False
        self.made = threading.Condition()
        self.gate = threading.Event()
        self.gate.set()

    def take(self, start_offset: int, count: int = 1) -> Segment:
        assert self.gate.wait(60)
        with self.made:
            self.asked.append((start_offset, threading.current_thread().name))
            self.made.notify_all()
        if self.full:
            raise DiskFullError("planted")
        return super().take(start_offset, count)

    def wait_asked(self, count: int) -> None:
        with self.made:
            assert self.made.wait_for(lambda: len(self.asked) >= count, 60)


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(tmp_path)


@pytest.fixture
def service(source: Source) -> Iterator[Preallocator]:
    made = Preallocator(source, ahead=2, retry_s=0.001)
    made.start()
    yield made
    source.gate.set()
    made.stop()


def names(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir())


def wait_until(service: Preallocator, condition: Callable[[], bool]) -> None:
    assert service._changes.until(condition, 60)


def test_next_two_are_prepared_by_the_service_thread(service: Preallocator, source: Source) -> None:
    service.prepare(0)
    wait_until(service, lambda: 0 in service._ready)
    segment = service.take(0)
    source.wait_asked(3)
    assert segment.start_offset == 0
    assert source.asked == [(k * SIZE, "preallocate") for k in range(3)]
    segment.close()


def test_a_prepared_segment_is_handed_out_without_the_source(
    service: Preallocator, source: Source
) -> None:
    service.prepare(0)
    wait_until(service, lambda: len(service._ready) == 2)
    source.gate.clear()  # nothing more can be made
    service.take(0).close()
    service.take(SIZE).close()


def test_a_segment_that_is_not_there_is_refused_at_once_and_comes_later(
    service: Preallocator, source: Source
) -> None:
    source.gate.clear()
    for _ in range(3):
        with pytest.raises(SegmentNotReadyError, match="being made") as refused:
            service.take(SIZE)
        assert isinstance(refused.value, StoreBusyError)
    assert not service.wait_ready(SIZE, 0)
    source.gate.set()
    assert service.wait_ready(SIZE, 60)
    service.take(SIZE).close()


def test_as_many_are_begun_as_the_appender_needs(service: Preallocator, source: Source) -> None:
    with pytest.raises(SegmentNotReadyError):
        service.take(0, 5)
    source.wait_asked(5)
    wait_until(service, lambda: len(service._ready) == 5)
    assert [start for start, _ in source.asked] == [k * SIZE for k in range(5)]


def test_with_none_ahead_each_is_made_when_it_is_asked_for(source: Source) -> None:
    service = Preallocator(source, ahead=0)
    service.start()
    service.start()
    service.prepare(0)
    with pytest.raises(SegmentNotReadyError):
        service.take(0)
    assert service.wait_ready(0, 60)
    service.take(0).close()
    with pytest.raises(SegmentNotReadyError):
        service.take(SIZE)
    assert service.wait_ready(SIZE, 60)
    assert source.asked == [(0, "preallocate"), (SIZE, "preallocate")]
    service.stop()


@pytest.mark.parametrize(
    ("size", "count"),
    [(4096, 8), (1 << 20, 8), (4 << 20, 4), (16 << 20, 2), (1 << 30, 2), (1 << 40, 2)],
)
def test_of_small_segments_more_are_kept_ahead(size: int, count: int) -> None:
    assert segments_ahead(size) == count


def test_stop_removes_what_nobody_took(
    service: Preallocator, source: Source, tmp_path: Path
) -> None:
    service.prepare(0)
    assert service.wait_ready(0, 60)
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
    wait_until(service, lambda: len(service._ready) == 2)
    source.full = True
    service.take(0).close()
    wait_until(service, lambda: 2 * SIZE in service._failed)
    service.take(SIZE).close()
    for _ in range(2):  # tried again meanwhile, full still
        with pytest.raises(DiskFullError, match="planted"):
            service.take(2 * SIZE)


def test_a_disk_that_was_full_refuses_nothing_once_it_has_space(
    service: Preallocator, source: Source
) -> None:
    source.full = True
    service.prepare(0)
    wait_until(service, lambda: 0 in service._failed)
    source.wait_asked(3)
    assert {start for start, _ in source.asked} == {0}  # nothing behind a gap
    source.full = False
    wait_until(service, lambda: 0 in service._ready)  # nobody had to ask
    service.take(0).close()


def test_before_start_segments_are_made_on_the_spot(tmp_path: Path, source: Source) -> None:
    service = Preallocator(source)
    service.take(0).close()
    assert source.asked == [(0, threading.current_thread().name)]
    service.stop()


def test_what_a_crash_leaves_prepared_is_cut_off_by_the_next_recovery(tmp_path: Path) -> None:
    service = Preallocator(SegmentSource(tmp_path, SIZE), ahead=2)
    segments = SegmentSet.load(tmp_path, SIZE, service)
    segments.roll().append(b"record")
    service.start()
    service.prepare(SIZE)
    wait_until(service, lambda: len(service._ready) == 2)
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
