"""Pages ahead of the appender are read, in large steps, and never past the segment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store.log.page_ahead import PageAhead
from store.log.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SIZE = 1 << 20


@pytest.fixture
def segment(tmp_path: Path) -> Iterator[Segment]:
    made = Segment.create(tmp_path / f"{0:020d}", 0, SIZE)
    yield made
    made.close()


def copy(segment: Segment, size: int) -> None:
    """Appends that are short enough to be copied into the mapping."""
    while size:
        size -= len(data := bytes(min(size, 4096)))
        segment.append(data)


def test_it_stays_a_window_ahead_and_reads_each_page_once(segment: Segment) -> None:
    service = PageAhead(lambda: segment, ahead_bytes=1 << 18)
    assert service.run_once() == 1 << 18
    assert service.run_once() == 0
    copy(segment, 1 << 17)
    assert service.run_once() == 1 << 17
    copy(segment, 100)  # not worth a step
    assert service.run_once() == 0


def test_it_ends_at_the_end_of_the_segment(segment: Segment) -> None:
    service = PageAhead(lambda: segment, ahead_bytes=1 << 18)
    copy(segment, SIZE - 5000)
    assert service.run_once() == 5000
    assert service.run_once() == 0
    copy(segment, 5000)
    assert service.run_once() == 0


def test_it_reads_nothing_while_appends_go_through_the_file(segment: Segment) -> None:
    service = PageAhead(lambda: segment, ahead_bytes=1 << 18)
    assert service.run_once() == 1 << 18
    segment.append(bytes(1 << 18))
    copy(segment, 1000)
    assert service.run_once() == 0
    copy(segment, 1 << 16)
    assert service.run_once() == 1 << 18


def test_it_changes_nothing(segment: Segment) -> None:
    segment.append(b"x" * 5000)
    PageAhead(lambda: segment).run_once()
    assert segment.appended == 5000
    assert segment.read(0, 5000) == b"x" * 5000
    assert segment.path.read_bytes()[5000:] == bytes(SIZE - 5000)


def test_without_a_segment_there_is_nothing_to_do() -> None:
    assert PageAhead(lambda: None).run_once() == 0
