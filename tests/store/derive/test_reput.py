"""Reput: everything in the log is dispatched once, in order, whoever does it."""

from __future__ import annotations

import queue
import sys
import threading
from typing import TYPE_CHECKING, cast

import pytest

from kvcq.state_store import KvStateStore
from kvcq.tables.keys import FAMILIES, STATE
from store.config import FlushMode
from store.derive.reput import _GATHERED_ROWS, ReputService
from store.derive.state_applier import StateApplier
from store.errors import (
    CorruptRecordError,
    DiskFullError,
    StoreBusyError,
    StoreClosedError,
    StoreFailedError,
)
from store.format.preparing import prepare
from store.log.acknowledgement import Acknowledgement
from store.log.batch_encoder import BatchEncoder
from store.log.commit_log import CommitLog
from store.log.queue_offsets import QueueOffsets
from store.log.segment_set import SegmentSet
from store.log.watermark import Watermark
from store.message import Message
from store.topics.admission import Admission
from tests.support.fake_clock import FakeClock
from tests.support.log_writer import Entry, LogWriter
from tests.support.memory_engine import MemoryEngine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from types import FrameType

    from _typeshed import TraceFunction

    from store.consume_queue import ConsumeQueueStore, DispatchRequest

SEGMENT = 8192


class Recorder:
    """A dispatcher that remembers, and refuses or fails when told to."""

    def __init__(self) -> None:
        self.requests: list[DispatchRequest] = []
        self.calls: list[int] = []
        self.batches: list[tuple[Sequence[DispatchRequest], int]] = []
        self.stalls_after: int | None = None  # calls
        self.end = 0
        self.busy = 0
        self.error: Exception | None = None
        self.gathers = False

    def dispatch(self, requests: Sequence[DispatchRequest], end_offset: int) -> None:
        if self.error is not None:
            raise self.error
        if self.stalls_after is not None and len(self.calls) >= self.stalls_after:
            raise StoreBusyError("planted")
        if self.busy > 0:
            self.busy -= 1
            raise StoreBusyError("planted")
        assert end_offset > self.end
        self.requests += requests
        self.calls.append(len(requests))
        self.batches.append((requests, end_offset))
        self.end = end_offset


class Harness:
    """A log with a reput service that dispatches to a recorder."""

    def __init__(self, directory: Path, *, inline: bool = True) -> None:
        self.segments = SegmentSet.load(directory, SEGMENT)
        if self.segments.last is None:
            self.segments.roll()
        encoder = BatchEncoder(("127.0.0.1", 1), crc_item=True)
        self.log = CommitLog(
            self.segments,
            QueueOffsets(1024, 0, self._load, lambda: 0),
            encoder,
            FakeClock(),
            hot_read_bytes=1 << 30,
        )
        self.recorder = Recorder()
        self.dispatched = Watermark("dispatched", self.log.start_offset)
        self.limit: int | None = None
        self.dead: set[str] = set()
        acknowledged = Acknowledgement(
            FlushMode.ASYNC if inline else FlushMode.SYNC,
            lambda: self.log.appended_offset,
            Watermark("flushed", self.log.start_offset),
            self.dispatched,
        )
        limit = lambda: self.log.appended_offset if self.limit is None else self.limit  # noqa: E731
        acknowledged.limit = limit  # type: ignore[method-assign]
        self.reput = ReputService(
            self.log,
            self.recorder,
            acknowledged,
            Admission(self, {}),
            StateApplier(
                self.log,
                KvStateStore(MemoryEngine((*FAMILIES, STATE))),
                cast("ConsumeQueueStore", self.recorder),
            ),
        )
        self.appended: list[DispatchRequest] = []

    def get(self, topic: str, /) -> int | None:
        """From where a topic lives."""
        return None if topic in self.dead else 0

    @staticmethod
    def _load(queues: Sequence[tuple[str, int]], light: Sequence[str], _log_end: int) -> list[int]:
        return [0] * (len(queues) + len(light))

    def append(self, *messages: Message, hold: bool = False) -> int:
        prepared = [prepare(message, n, 1 << 20, 100) for n, message in enumerate(messages)]
        offer = self.reput.hold if hold else self.reput.offer
        with self.log.lock:
            done = self.log.append(messages, prepared, offer, separate=True)
        self.appended += done.requests
        return done.end_offset

    def close(self) -> None:
        if self.reput._thread.is_alive():
            self.reput.stop()
        self.log.close()


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    made = Harness(tmp_path / "log")
    yield made
    made.close()


SOME = (
    Message("T", b"a"),
    Message("T", b"b", 1, tag="t", keys=("k1", "k2"), light_queues=("%LMQ%a", "%LMQ%b")),
    Message("U", b"c" * 3000, properties={"UNIQ_KEY": "u"}),
    Message("T", b"d", sys_flag=4, keys=("p",)),
    Message("T", b"e", sys_flag=12, keys=("r",)),
)


def test_the_appender_dispatches_by_itself(harness: Harness) -> None:
    end = harness.append(*SOME)
    assert harness.recorder.requests == harness.appended
    assert harness.recorder.end == harness.dispatched.value == end


def test_where_it_is_cheaper_large_batches_are_dispatched_together(harness: Harness) -> None:
    harness.recorder.gathers = True
    harness.append(Message("T", b"small"))
    assert len(harness.recorder.batches) == 1
    for _ in range(4):
        harness.append(*[Message("T", b"large")] * 100)
    assert len(harness.recorder.batches) == 1
    harness.reput.catch_up()
    assert [len(requests) for requests, _ in harness.recorder.batches] == [1, 400]
    assert harness.recorder.requests == harness.appended


def test_a_replay_finds_what_the_appender_knew(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "log", inline=False)
    for _ in range(6):  # over segments
        harness.append(*SOME)
    harness.reput._pending.clear()
    told: list[int] = []
    harness.reput.catch_up(told.append)
    assert harness.recorder.requests == harness.appended
    assert told[-1] == harness.dispatched.value == harness.log.appended_offset
    assert told == sorted(told)
    harness.close()


def test_nothing_beyond_the_limit_is_dispatched(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "log", inline=False)
    harness.limit = 0
    ends = [harness.append(*SOME) for _ in range(3)]
    harness.reput.start()
    harness.reput.wake()
    harness.limit = ends[0]
    harness.reput.wake()
    assert harness.dispatched.wait_for(ends[0], 30)
    assert harness.recorder.end == ends[0]
    harness.limit = ends[2]
    harness.reput.stop()
    assert harness.recorder.requests == harness.appended
    with pytest.raises(StoreClosedError):
        harness.dispatched.wait_for(ends[2] + 1, 0)
    harness.close()


def test_whoever_raises_the_limit_dispatches_a_few_rows_up_to_it(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "log", inline=False)
    harness.limit = 0
    ends = [harness.append(*SOME) for _ in range(2)]
    harness.reput.follow()
    assert harness.recorder.calls == []  # nothing is due
    harness.limit = ends[0]
    harness.reput.follow()  # there is no thread yet
    assert harness.recorder.end == ends[0]
    harness.limit = ends[1]
    harness.reput.follow()
    assert harness.recorder.requests == harness.appended
    harness.close()


def test_what_is_held_waits_for_whoever_follows(harness: Harness) -> None:
    for number in range(3):
        end = harness.append(Message("T", b"held"), hold=True)
        assert harness.dispatched.value < end
        assert len(harness.recorder.requests) == number
        harness.reput.follow()
        assert harness.dispatched.value == end
    assert harness.recorder.requests == harness.appended


def test_appenders_come_between_any_two_steps_of_whoever_follows(harness: Harness) -> None:
    left = 40

    def enter(frame: FrameType, _event: str, _arg: object) -> TraceFunction | None:
        if frame.f_code.co_name not in ("_is_little", "_dispatch_pending"):
            return None
        frame.f_trace_opcodes = True
        return step

    def step(_frame: FrameType, event: str, _arg: object) -> TraceFunction:
        nonlocal left
        if event == "opcode" and left:
            left -= 1
            harness.append(Message("T", b"meanwhile"), hold=True)
        return step

    sys._getframe().f_trace_opcodes = True  # Python 3.12 asks for it
    while left:
        end = harness.append(Message("T", b"held"), hold=True)
        sys.settrace(enter)
        try:
            harness.reput.follow()
        finally:
            sys.settrace(None)
        assert harness.dispatched.value >= end
    harness.reput.follow()
    assert harness.recorder.requests == harness.appended


@pytest.mark.parametrize("count", [1, _GATHERED_ROWS + 1])
def test_who_appends_behind_what_is_held_dispatches_both(harness: Harness, count: int) -> None:
    for _ in range(2):
        harness.append(Message("T", b"held"), hold=True)
    end = harness.append(*[Message("T", b"next")] * count)
    assert harness.dispatched.value == end
    assert harness.recorder.requests == harness.appended


def test_what_is_held_and_not_followed_is_dispatched_at_the_end(harness: Harness) -> None:
    harness.reput.start()
    harness.append(Message("T", b"held"), hold=True)
    harness.reput.stop()
    assert harness.recorder.requests == harness.appended


def test_many_rows_are_not_held(harness: Harness) -> None:
    queues = tuple(f"%LMQ%{number}" for number in range(_GATHERED_ROWS))
    end = harness.append(Message("T", b"in many", light_queues=queues), hold=True)
    assert harness.dispatched.value == end


def test_what_is_held_beside_a_stall_is_left_to_the_thread(harness: Harness) -> None:
    harness.recorder.busy = 2
    end = harness.append(Message("T", b"held"), hold=True)
    harness.reput.follow()
    assert harness.dispatched.value < end
    harness.reput.start()
    assert harness.dispatched.wait_for(end, 30)
    assert harness.recorder.requests == harness.appended


@pytest.mark.parametrize("in_one", [True, False])
def test_many_rows_are_left_to_the_thread(tmp_path: Path, in_one: bool) -> None:
    harness = Harness(tmp_path / "log", inline=False)
    many = [Message("T", b"x")] * (_GATHERED_ROWS + 1)
    for messages in [many] if in_one else [[message] for message in many]:
        harness.append(*messages)
    harness.reput.follow()
    assert harness.recorder.calls == []
    harness.reput.start()
    assert harness.dispatched.wait_for(harness.log.appended_offset, 30)
    assert harness.recorder.requests == harness.appended
    harness.close()


def test_what_the_list_did_not_take_is_left_to_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = Harness(tmp_path / "log", inline=False)
    with monkeypatch.context() as small:
        small.setattr("store.derive.reput._PENDING_BYTES", 0)
        harness.append(*SOME)
    end = harness.append(*SOME)
    harness.reput.follow()
    assert harness.recorder.calls == []
    harness.reput.start()
    assert harness.dispatched.wait_for(end, 30)
    assert harness.recorder.requests == harness.appended
    harness.close()


def test_a_stall_of_whoever_raises_the_limit_is_waited_for_by_the_thread(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "log", inline=False)
    end = harness.append(*SOME)
    harness.recorder.busy = 1
    harness.reput.follow()
    assert harness.dispatched.value == harness.log.start_offset
    harness.reput.start()  # it was woken before
    assert harness.dispatched.wait_for(end, 30)
    assert harness.recorder.requests == harness.appended
    harness.close()


def test_a_failure_of_whoever_raises_the_limit_is_final_too(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "log", inline=False)
    end = harness.append(*SOME)
    harness.recorder.error = RuntimeError("planted")
    harness.reput.follow()
    with pytest.raises(StoreFailedError):
        harness.dispatched.wait_for(end, 0)
    harness.close()


def test_what_is_far_behind_goes_in_large_steps(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "log", inline=False)
    for _ in range(100):
        harness.append(Message("T", b"x"))
    harness.reput.catch_up()
    assert harness.recorder.requests == harness.appended
    assert len(harness.recorder.calls) <= 3
    harness.close()


@pytest.mark.parametrize("gathers", [False, True])
def test_a_large_batch_is_dispatched_as_it_was_appended(tmp_path: Path, gathers: bool) -> None:
    harness = Harness(tmp_path / "log", inline=False)
    harness.recorder.gathers = gathers
    large = _GATHERED_ROWS + 1
    for count in (1, 2, large, large, 2, 1):
        harness.append(*[Message("T", b"x")] * count)
    harness.reput.catch_up()
    assert harness.recorder.requests == harness.appended
    alone = [3, large, large, 3]
    assert harness.recorder.calls == ([sum(alone)] if gathers else alone)
    harness.close()


def test_what_does_not_fit_the_list_is_read_from_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("store.derive.reput._PENDING_BYTES", 500)
    harness = Harness(tmp_path / "log", inline=False)
    for number in range(40):
        harness.append(Message("T", b"x" * (number * 7)))
        if number % 10 == 0:
            harness.reput.catch_up()
    harness.reput.catch_up()
    assert harness.recorder.requests == harness.appended
    assert harness.reput._offered_bytes == harness.reput._taken_bytes > 0
    harness.close()


def test_a_busy_consume_queue_is_asked_again(harness: Harness) -> None:
    harness.reput.start()
    harness.recorder.busy = 3
    for _ in range(10):
        end = harness.append(*SOME)
        assert end > 0
    assert harness.dispatched.wait_for(harness.log.appended_offset, 30)
    assert harness.recorder.requests == harness.appended


def test_a_full_disk_is_over_also_when_an_appender_dispatches_what_was_left(
    harness: Harness,
) -> None:
    harness.recorder.error = DiskFullError("planted")
    end = harness.append(*SOME)
    assert harness.reput.waits_for is not None
    harness.recorder.error = None
    harness.reput.dispatch_to(end)
    assert harness.dispatched.value == end
    harness.reput.start()
    harness.reput.stop()
    assert harness.reput.waits_for is None, "puts are refused for as long as it is set"


def test_appenders_and_the_thread_do_not_dispatch_twice(harness: Harness) -> None:
    harness.reput.start()

    def run() -> None:
        for number in range(60):
            if number % 7 == 0:
                harness.recorder.busy = 1
            harness.append(Message("T", b"x"))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert harness.dispatched.wait_for(harness.log.appended_offset, 30)
    places = [request.physical_offset for request in harness.recorder.requests]
    assert places == sorted(places)
    assert len(set(places)) == 180


def test_what_an_appender_dispatched_first_is_not_dispatched_again(harness: Harness) -> None:
    """Between the thread's look at the watermark and its turn an appender may have come."""
    harness.append(Message("T", b"x"))
    harness.reput._step()
    assert harness.recorder.calls == [1]


@pytest.mark.parametrize("inline", [False, True])
def test_a_failure_is_final_and_told(tmp_path: Path, inline: bool) -> None:
    harness = Harness(tmp_path / "log", inline=inline)
    harness.reput.start()
    harness.recorder.error = ValueError("planted")
    end = harness.append(*SOME)
    harness.reput.wake()
    with pytest.raises(StoreFailedError, match="planted"):
        harness.dispatched.wait_for(end, 30)
    harness.recorder.error = None
    harness.reput.wake()
    harness.reput.stop()  # does not run for ever
    assert harness.recorder.requests == []
    harness.close()


def test_dead_records_are_passed_over(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "log", inline=False)
    end = harness.append(*SOME, SOME[1], SOME[0], SOME[0])
    harness.reput._pending.clear()
    harness.dead = {"T"}
    harness.reput.catch_up()
    # A message stands in its light queues also when its own topic is gone; those after it do not.
    assert [request.topic for request in harness.recorder.requests] == ["%LMQ%a", "U", "%LMQ%a"]
    assert harness.dispatched.value == end
    harness.close()


def test_poison_stops_nobody(tmp_path: Path) -> None:
    # Hazard H15: records that no queue can hold, from other writers.
    writer = LogWriter(tmp_path / "log", SEGMENT, crc_item=False)
    writer.extend(
        [
            Entry(body=b"good"),
            Entry(queue_id=-1),
            Entry(queue_id=3, queue_offset=-5),
            Entry(queue_id=2),
            Entry(
                properties={
                    "INNER_MULTI_DISPATCH": "%LMQ%a,plain,%LMQ%b",
                    "INNER_MULTI_QUEUE_OFFSET": f"0,,{2**70}",
                }
            ),
            Entry(body=b"good"),
        ]
    )
    writer.flush()
    harness = Harness(tmp_path / "log", inline=False)
    harness.limit = writer.end
    harness.reput.catch_up()
    assert [(r.queue_id, r.light_queues) for r in harness.recorder.requests] == [
        (0, ()),
        (2, ()),
        (0, (("%LMQ%a", 0),)),
        (0, ()),
    ]
    assert harness.reput.poison_count == 2
    harness.close()


def test_damage_stops_dispatch(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "log", inline=False)
    harness.append(*SOME)
    second = harness.appended[1]
    harness.reput._pending.clear()
    segment = harness.segments.last
    assert segment is not None
    segment.buffer[second.physical_offset + 60] ^= 1
    with pytest.raises(CorruptRecordError) as caught:
        harness.reput.catch_up()
    assert caught.value.physical_offset == second.physical_offset
    harness.close()


def test_listeners_come_and_go(harness: Harness) -> None:
    heard: queue.SimpleQueue[Sequence[DispatchRequest]] = queue.SimpleQueue()
    leave = harness.reput.add_listener(heard.put)
    harness.append(*SOME[:2])
    assert heard.get_nowait() == harness.appended
    leave()
    leave()
    harness.append(*SOME)
    assert heard.empty()


def _rows(requests: Sequence[DispatchRequest]) -> int:
    return sum(1 + len(one.keys) + len(one.light_queues) for one in requests)


@pytest.mark.parametrize("way", ["appender", "list", "log"])
def test_many_rows_go_in_several_writes_that_divide_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr("store.derive.reput.SLICE_ROWS", 20)
    harness = Harness(tmp_path / "log", inline=way == "appender")
    many = [
        Message(
            "T",
            b"%d" % n,
            keys=("k",) * (n % 2),
            light_queues=tuple(f"%LMQ%{n}-{at}" for at in range(n % 9)),
        )
        for n in range(60)
    ]
    end = harness.append(*many)
    assert harness.recorder.requests == []  # it was too much for the appender, under its lock
    if way == "log":
        harness.reput._pending.clear()
    harness.reput.dispatch_to(end)
    assert harness.recorder.requests == harness.appended
    assert harness.dispatched.value == harness.recorder.end == end
    assert len(harness.recorder.batches) > 5
    largest = max(_rows([one]) for one in harness.appended)
    for at, (requests, piece_end) in enumerate(harness.recorder.batches):
        assert _rows(requests) < 20 + largest
        last = requests[-1]
        assert piece_end >= last.physical_offset + last.record_size
        for following, _ in harness.recorder.batches[at + 1 : at + 2]:
            assert following[0].physical_offset >= piece_end
    harness.close()


def test_a_stall_between_two_writes_of_a_batch_costs_none_of_it(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("store.derive.reput.SLICE_ROWS", 4)
    end = harness.append(*(Message("T", b"%d" % n) for n in range(20)))
    harness.recorder.stalls_after = 2
    harness.reput.dispatch_to(end)
    assert len(harness.recorder.requests) == 8
    assert harness.dispatched.value == harness.appended[8].physical_offset
    harness.recorder.stalls_after = None
    harness.reput.dispatch_to(end)
    assert harness.recorder.requests == harness.appended
