"""Reput: everything in the log is dispatched once, in order, whoever does it."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING

import pytest

from store.derive.reput import _GATHERED_ROWS
from store.errors import (
    CorruptRecordError,
    DiskFullError,
    StoreFailedError,
)
from store.message import Message
from tests.support.dispatching import SEGMENT, SOME, Harness
from tests.support.log_writer import Entry, LogWriter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from store.consume_queue import DispatchRequest


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
