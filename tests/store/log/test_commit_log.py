"""The log takes all of an append or nothing, and gives back what it took, verified."""

from __future__ import annotations

import errno
import os
import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from store.errors import (
    CorruptRecordError,
    DiskFullError,
    InvalidArgumentError,
    MessageNotFoundError,
    StoreClosedError,
)
from store.format.preparing import PlainBatch, prepare, prepare_all
from store.format.record import Found, check_record, dispatch_request, pack_blank, unpack_record
from store.log.batch_encoder import BatchEncoder
from store.log.commit_log import CommitLog
from store.log.queue_offsets import QueueOffsets
from store.log.segment_set import SegmentSet, SegmentSource
from store.message import FEW, Message
from tests.support.fake_clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from store.format import Prepared
    from store.log.commit_log import LogAppend
    from store.log.segment import Segment

SEGMENT = 4096


class FullDisk(SegmentSource):
    """A source of segments that runs out after a number of them."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, SEGMENT)
        self.left = 1000

    def take(self, start_offset: int, count: int = 1) -> Segment:
        if self.left <= 0:
            raise DiskFullError("no space")
        self.left -= 1
        return super().take(start_offset, count)


class Harness:
    """A commit log with an empty consume queue behind it."""

    def __init__(self, directory: Path, *, hot_read_bytes: int = 1 << 30) -> None:
        self.clock = FakeClock()
        self.source = FullDisk(directory)
        self.segments = SegmentSet.load(directory, SEGMENT, self.source)
        self.segments.roll()
        encoder = BatchEncoder(("127.0.0.1", 8081), crc_item=True)
        self.queues = QueueOffsets(1024, 0, self._load, lambda: 0)
        self.log = CommitLog(
            self.segments,
            self.queues,
            encoder,
            self.clock,
            hot_read_bytes=hot_read_bytes,
        )
        self.published: list[LogAppend] = []

    @staticmethod
    def _load(queues: Sequence[tuple[str, int]], light: Sequence[str], _log_end: int) -> list[int]:
        return [0] * (len(queues) + len(light))

    def append(self, *messages: Message, by_columns: bool = False) -> LogAppend:
        prepared: Sequence[Prepared]
        if by_columns:
            prepared = prepare_all(messages, 1 << 20, 9)
            assert isinstance(prepared, PlainBatch)
        else:
            prepared = [prepare(message, n, 1 << 20, 9) for n, message in enumerate(messages)]
        with self.log.lock:
            return self.log.append(messages, prepared, self.published.append)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    made = Harness(tmp_path / "log")
    yield made
    made.log.close()


def body(size: int) -> Message:
    return Message("T", b"x" * size)


def records(harness: Harness) -> list[int]:
    """Physical offsets of all records, walked from the start; the walk must end at the end."""
    log = harness.log
    at = log.start_offset
    found = []
    while at < log.appended_offset:
        with log.view(at, log.appended_offset) as view:
            checked = check_record(view, 0, len(view), at)
            if checked.found is Found.BLANK:
                at = log.segment_end(at)
                continue
            assert checked.found is Found.RECORD, (at, checked)
            assert dispatch_request(view, 0).physical_offset == at
        found.append(at)
        at += checked.size
    assert at == log.appended_offset
    return found


def test_what_is_appended_reads_back(harness: Harness) -> None:
    done = harness.append(Message("T", b"one", tag="a"), Message("T", b"two", queue_id=3))
    assert harness.published == [done]
    assert (done.start_offset, done.end_offset) == (0, harness.log.appended_offset)
    for request, expected in zip(done.requests, (b"one", b"two"), strict=True):
        record = harness.log.read(request.physical_offset, request.record_size)
        assert unpack_record(record).body == expected
        assert harness.log.read_at(request.physical_offset) == record
    places = [(request[3], request[4]) for request in done.requests]
    assert harness.log.read_run(places) == [harness.log.read(*place) for place in places]


def test_a_batch_goes_on_in_the_next_segments(harness: Harness) -> None:
    done = harness.append(*[body(1000)] * 10)
    offsets = [request.physical_offset for request in done.requests]
    assert records(harness) == offsets
    assert {offset // SEGMENT for offset in offsets} == {0, 1, 2, 3}
    assert [request.queue_offset for request in done.requests] == list(range(10))
    # A blank record closes each segment that is left, counted to its end.
    first_in_second = next(offset for offset in offsets if offset >= SEGMENT)
    end = max(
        request.physical_offset + request.record_size
        for request in done.requests
        if request.physical_offset < SEGMENT
    )
    assert first_in_second == SEGMENT
    segment = harness.segments.find(0)
    assert segment is not None
    assert segment.read(end, 8) == pack_blank(SEGMENT - end)


@pytest.mark.parametrize("by_columns", [False, True])
def test_light_queues_go_on_in_the_next_segments(harness: Harness, by_columns: bool) -> None:
    names = [("%LMQ%a",), (), ("%LMQ%b", "%LMQ%a")]
    batch = [body(700)._replace(light_queues=names[at % 3]) for at in range(FEW)]
    taken = {"%LMQ%a": 0, "%LMQ%b": 0}
    for _ in range(3):
        done = harness.append(*batch, by_columns=by_columns)
        for message, request in zip(batch, done.requests, strict=True):
            assert request.light_queues == tuple(
                (name, taken[name]) for name in message.light_queues
            )
            taken |= {name: taken[name] + 1 for name in message.light_queues}
    assert len(records(harness)) == 3 * FEW


@pytest.mark.parametrize("left", range(14))
def test_eight_bytes_stay_free_for_the_blank(harness: Harness, left: int) -> None:
    first = harness.append(body(100)).requests[0].record_size
    overhead = first - 100
    second = harness.append(body(SEGMENT - first - overhead - left)).requests[0]
    assert second.physical_offset == (first if left >= 8 else SEGMENT)
    harness.append(body(1))
    assert len(records(harness)) == 3


def test_a_record_larger_than_a_segment_is_refused(harness: Harness) -> None:
    harness.append(body(10))
    before = harness.log.appended_offset
    with pytest.raises(InvalidArgumentError, match=r"messages\[1\].body"):
        harness.append(body(10), body(SEGMENT))
    assert harness.log.appended_offset == before
    assert harness.append(body(10)).requests[0].queue_offset == 1
    assert len(records(harness)) == 2


@pytest.mark.parametrize("left", [0, 1, 2])
def test_a_full_disk_takes_nothing_by_halves(harness: Harness, left: int) -> None:
    harness.append(body(10))
    harness.source.left = left
    before = harness.log.appended_offset
    with pytest.raises(DiskFullError):
        harness.append(*[body(1000)] * 12)  # needs three more segments
    assert harness.log.appended_offset == before
    assert len(harness.published) == 1
    assert harness.append(body(20)).requests[0].queue_offset == 1
    harness.source.left = 1000
    done = harness.append(*[body(1000)] * 12)
    assert [request.queue_offset for request in done.requests] == list(range(2, 14))
    assert len(records(harness)) == 14


def test_a_full_disk_while_others_read_and_flush(harness: Harness) -> None:
    # Reads through the file and flushes hold the segment: giving up must not need it alone.
    log = harness.log
    first = harness.append(body(10)).requests[0]
    harness.source.left = 0
    segment = harness.segments.find(0)
    assert segment is not None
    with segment._in_use(), pytest.raises(DiskFullError):
        harness.append(*[body(1000)] * 12)
    assert log.flush(0) == log.appended_offset
    done = harness.append(body(20))
    assert done.start_offset == first.physical_offset + first.record_size
    assert log.flush(0) == done.end_offset
    assert len(records(harness)) == 2


def test_segments_made_in_vain_are_removed(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "log")
    harness.source.left = 2
    with pytest.raises(DiskFullError):
        harness.append(*[body(1000)] * 12)
    harness.log.close()
    assert [path.name for path in (tmp_path / "log").iterdir()] == [f"{0:020}"]


def test_store_times_never_fall(harness: Harness) -> None:
    first = harness.append(body(1))
    harness.clock.jump(-100)
    assert harness.append(body(1)).store_time_ms == first.store_time_ms
    harness.clock.jump(200)
    assert harness.append(body(1)).store_time_ms == first.store_time_ms + 100_000


def test_concurrent_appends_share_one_order(harness: Harness) -> None:
    def run(queue_id: int) -> None:
        for _ in range(50):
            harness.append(Message("T", b"x", queue_id=queue_id), Message("T", b"y"))

    threads = [threading.Thread(target=run, args=(n,)) for n in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    requests = [request for done in harness.published for request in done.requests]
    assert [request.physical_offset for request in requests] == records(harness)
    for queue_id, count in ((0, 150), (1, 50), (2, 50), (3, 50)):
        offsets = [each.queue_offset for each in requests if each.queue_id == queue_id]
        assert offsets == list(range(count))


# --- reading ----------------------------------------------------------------------------------


@pytest.mark.parametrize("hot", [1 << 30, 1])
def test_damage_is_never_served(tmp_path: Path, hot: int) -> None:
    harness = Harness(tmp_path / "log", hot_read_bytes=hot)
    requests = harness.append(*[Message("T", b"hello", tag="a")] * 3).requests
    segment = harness.segments.find(0)
    assert segment is not None
    second = requests[1]
    places = [(request[3], request[4]) for request in requests]
    for bit in range(second.record_size * 8):
        at = second.physical_offset + bit // 8
        segment.buffer[at] ^= 1 << bit % 8
        with pytest.raises(CorruptRecordError):
            harness.log.read(*places[1])
        with pytest.raises(CorruptRecordError):
            harness.log.read_run(places[1:])
        assert len(harness.log.read_run(places)) == 1  # what is before the damage
        with pytest.raises((CorruptRecordError, MessageNotFoundError)):
            harness.log.read_at(second.physical_offset)
        segment.buffer[at] ^= 1 << bit % 8
    assert len(harness.log.read_run(places)) == 3
    harness.log.close()


@pytest.mark.parametrize("hot", [1 << 30, 1])
def test_a_run_is_what_reading_one_by_one_gives(tmp_path: Path, hot: int) -> None:
    harness = Harness(tmp_path / "log", hot_read_bytes=hot)
    requests = harness.append(*[body(700)] * 12, *[body(10)] * 12).requests
    real = [(request[3], request[4]) for request in requests]
    end = harness.log.appended_offset
    false = [(0, 50), (1, real[0][1]), (real[3][0], real[3][1] + 1), (end - 40, 100), (end, 100)]

    def one_by_one(places: Sequence[tuple[int, int]]) -> list[bytes]:
        found: list[bytes] = []
        for place in places:
            try:
                found.append(harness.log.read(*place))
            except (CorruptRecordError, MessageNotFoundError):
                if not found:
                    raise
                break
        return found

    # Units of other writers, and damaged ones, need not rise.
    @given(st.lists(st.sampled_from([*real * 4, *false]), max_size=30))
    @example(real)
    @example(real[::-1])
    def check(places: list[tuple[int, int]]) -> None:
        try:
            wanted = one_by_one(places)
        except (CorruptRecordError, MessageNotFoundError) as error:
            with pytest.raises(type(error)):
                harness.log.read_run(places)
        else:
            assert harness.log.read_run(places) == wanted

    check()
    harness.log.close()


@pytest.mark.parametrize("offset", [-1, 1, 50, SEGMENT - 4, SEGMENT, 1 << 40])
def test_no_record_begins_there(harness: Harness, offset: int) -> None:
    harness.append(*[body(1000)] * 4)
    if offset == SEGMENT:
        offset = harness.log.appended_offset
    with pytest.raises(MessageNotFoundError):
        harness.log.read_at(offset)


def test_a_damaged_record_is_not_a_missing_one(harness: Harness) -> None:
    harness.append(body(10), body(10))
    segment = harness.segments.find(0)
    assert segment is not None
    segment.buffer[90] ^= 1
    with pytest.raises(CorruptRecordError, match="CRC"):
        harness.log.read_at(0)


def test_a_size_inside_a_body_is_not_believed(harness: Harness) -> None:
    # Else a caller could have a whole segment read for a body that looks like a record's head.
    head = b"\x00\x00\x10\x00\xda\xa3\x20\xa7" + bytes(100)
    request = harness.append(Message("T", head)).requests[0]
    with pytest.raises(MessageNotFoundError):
        harness.log.read_at(request.physical_offset + 88)


def test_reads_outside_the_log(harness: Harness) -> None:
    request = harness.append(body(10)).requests[0]
    for offset, size in ((0, request.record_size + 1), (SEGMENT, 100), (-1, 100)):
        with pytest.raises(MessageNotFoundError):
            harness.log.read(offset, size)


def test_dropped_segments_are_not_found(harness: Harness) -> None:
    requests = harness.append(*[body(1000)] * 6).requests
    harness.log.flush(0)
    harness.segments.drop_first()
    assert harness.log.start_offset == SEGMENT
    with pytest.raises(MessageNotFoundError):
        harness.log.read(requests[0].physical_offset, requests[0].record_size)
    with pytest.raises(MessageNotFoundError):
        harness.log.view(0, 100)
    assert harness.log.read(requests[-1].physical_offset, requests[-1].record_size)


def test_the_first_time_from_a_segment_on(harness: Harness) -> None:
    assert harness.log.first_time_from(0) is None
    harness.append(*[body(1000)] * 3)
    harness.clock.advance(5)
    harness.append(body(1000))
    assert harness.log.first_time_from(0) == (0, harness.clock.now_ms() - 5000)
    assert harness.log.first_time_from(SEGMENT) == (SEGMENT, harness.clock.now_ms())
    assert harness.log.first_time_from(2 * SEGMENT) is None


def test_a_damaged_first_record_is_as_old_as_the_next_whole_one(harness: Harness) -> None:
    harness.append(*[body(1000)] * 4)
    harness.clock.advance(5)
    done = harness.append(body(1000))
    segment = harness.segments.find(SEGMENT)
    assert segment is not None
    for position in (4, 60, 500):
        segment.buffer[position] ^= 1
        found = harness.log.first_time_from(SEGMENT)
        assert found == (done.requests[0].physical_offset, harness.clock.now_ms())
        segment.buffer[position] ^= 1


# --- durability and end -----------------------------------------------------------------------


def test_flush_says_what_is_durable(harness: Harness) -> None:
    assert harness.log.flush(0) == 0
    done = harness.append(body(10))
    assert harness.log.flush(4) == 0  # less than four pages wait
    assert harness.log.flush(0) == done.end_offset
    done = harness.append(*[body(1000)] * 5)
    assert harness.log.flush(0) == done.end_offset


def test_a_failed_fsync_is_raised(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.append(body(10))

    def fail(_descriptor: int) -> None:
        raise OSError(errno.EIO, "planted")

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(OSError, match="planted"):
        harness.log.flush(0)


def test_a_closed_log(harness: Harness) -> None:
    request = harness.append(body(10)).requests[0]
    harness.log.close()
    harness.log.close()
    with pytest.raises(StoreClosedError):
        harness.append(body(10))
    with pytest.raises(StoreClosedError):
        harness.log.read(request.physical_offset, request.record_size)
    with pytest.raises(StoreClosedError):
        harness.log.read_run([(request.physical_offset, request.record_size)])
    with pytest.raises(StoreClosedError):
        harness.log.read_at(request.physical_offset)
