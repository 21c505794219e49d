"""kvcq/backup/log_cut.py and its place in a restore: where a cut is looked for."""

from __future__ import annotations

import tracemalloc
from contextlib import closing
from typing import TYPE_CHECKING, cast

import pytest

from kvcq.backup import Cut, open_place, restore, take_backup
from store.errors import InvalidArgumentError
from store.format import FastParser
from store.log import Run, SegmentSet, walk
from store.message import Message
from tests.support.backups import put_some, queues_of
from tests.support.fake_clock import FakeClock
from tests.support.stores import SEGMENT_BYTES, open_small

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kvcq.backup.places import Place


class _SmallPieces:
    """The files of a place, in pieces of 1 KiB."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.url = place.url

    def read(self, name: str) -> Iterator[bytes]:
        for piece in self._place.read(name):
            yield from (piece[at : at + 1024] for at in range(0, len(piece), 1024))


@pytest.mark.slow
def test_looking_for_the_first_message_keeps_no_more_than_a_record(tmp_path: Path) -> None:
    """A log may begin with a gigabyte of committed offsets."""
    clock = FakeClock()
    with open_small(tmp_path / "store", clock, segment_bytes=4 << 20) as store:
        store.create_topics([("T", 500)])
        for number in range(200):
            store.commit_offsets(f"group-{number}", [("T", queue_id, 0) for queue_id in range(500)])
        state_bytes = store.log.appended_offset
        store.put([Message("T", b"first")])
        clock.advance(1)
        taken = take_backup(store, queues_of(store), str(tmp_path / "b"), clock=clock)
    place = cast("Place", _SmallPieces(open_place(str(tmp_path / "b"))))
    tracemalloc.start()
    try:
        with pytest.raises(InvalidArgumentError, match="would leave no message"):
            restore(place, taken.backup, tmp_path / "again", Cut(until_offset=1))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < state_bytes / 2


@pytest.mark.parametrize(
    ("late_s", "note_is_damaged"), [(5, False), (30, False), (30, True), (45, False), (75, False)]
)
def test_nothing_later_is_left_where_store_times_fall(
    late_s: int, note_is_damaged: bool, tmp_path: Path
) -> None:
    """The clock was half an hour ahead for a minute: the same time is in the log twice."""
    clock = FakeClock()
    began_ms = clock.now_ms()
    with open_small(tmp_path / "store", clock) as store:
        put_some(store, clock, 60)
        clock.jump(1800)
        put_some(store, clock, 60)
        clock.jump(-1900)
        put_some(store, clock, 120)
        every = times_of(tmp_path / "store")
        if note_is_damaged:
            (tmp_path / "store/notes/store_time_falls").write_bytes(b"0" * 33)
        clock.advance(3600)
        url = str(tmp_path / "b")
        taken = take_backup(store, queues_of(store), url, clock=clock).backup
    until_ms = began_ms + late_s * 1000
    restore(open_place(url), taken, tmp_path / "again", Cut(until_ms=until_ms))
    found = times_of(tmp_path / "again")
    assert found == every[: len(found)]
    assert max(found) <= until_ms < every[len(found)]


def times_of(root: Path) -> list[int]:
    """Store time of each record of the log."""
    with closing(SegmentSet.load(root / "commitlog", SEGMENT_BYTES, read_only=True)) as segments:
        return [
            request.store_time_ms
            for step in walk(segments, segments.first_offset, parser=FastParser())
            if isinstance(step, Run)
            for request in step.requests
        ]
