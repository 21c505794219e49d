"""Store times that fall: what a record counts as, and what expiry and searches make of it."""

from __future__ import annotations

import os
import struct
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kvcq.inspect import inspect_store
from kvcq.inspect.findings import Kind
from store.base import SystemClock
from store.config import FlushMode
from store.consume_queue import Boundary, DispatchRequest
from store.errors import AppendWouldWaitError, DamagedQueueError
from store.format import unpack_record
from store.log.store_times import (
    CARRY_MS,
    MOST_FALLS,
    MOST_STEP_MS,
    Fall,
    FallFinder,
    Falls,
    StoreTimes,
    read_falls,
    write_falls,
)
from store.message import Message
from store.metadata import Retention
from store.notes import Notes
from tests.crash.images import flip
from tests.support.checked import assert_whole
from tests.support.fake_clock import FakeClock
from tests.support.stores import SEGMENT_BYTES, open_small
from tests.support.tree import copy_open

if TYPE_CHECKING:
    from pathlib import Path

    from store.message_store import MessageStore

_HOUR_MS = 3_600_000
_HOUR_S = 3600
_YEAR_S = 365 * 24 * _HOUR_S


# --- the rule ---------------------------------------------------------------------------------


def find(times: list[int]) -> Falls:
    """What is found in records of 10 bytes with these store times."""
    finder = FallFinder()
    for at, time_ms in enumerate(times):
        finder.look([DispatchRequest("T", 0, at, at * 10, 10, 0, time_ms, (), (), True)])
    return finder.found


def times_of(falls: Falls, now_ms: int = 1000) -> StoreTimes:
    return StoreTimes(FakeClock(now_ms), falls)


@given(st.lists(st.integers(1, 40), max_size=400), st.integers(0, 60))
def test_no_record_is_older_than_where_the_line_is_drawn(stamps: list[int], now_ms: int) -> None:
    times = times_of(find(stamps), now_ms)
    for begin, time_ms in enumerate(stamps):
        assert min(stamps[begin:]) >= times.oldest_from(begin * 10, time_ms)


@given(st.lists(st.integers(1, 40), min_size=2, max_size=4 * MOST_FALLS))
@example([time_ms - time_ms % 2 * 5 for time_ms in range(6, 6 + 4 * MOST_FALLS)])
def test_judged_times_never_fall_whatever_the_stamps_do(stamps: list[int]) -> None:
    times = times_of(find(stamps), max(stamps) + 1)
    judged = [times.of(at * 10, time_ms) for at, time_ms in enumerate(stamps)]
    assert all(earlier <= later for earlier, later in pairwise(judged))
    assert all(each >= stamp for each, stamp in zip(judged, stamps, strict=True)), "none is older"


@given(
    st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=2, max_size=MOST_FALLS),
    st.integers(0, 9),
)
def test_judged_times_are_those_of_a_clock_that_is_ahead_now_and_then(
    steps: list[tuple[int, bool]], later: int
) -> None:
    true = [sum(step for step, _ in steps[: at + 1]) for at in range(len(steps))]
    stamps = [each + 10_000 * ahead for each, (_, ahead) in zip(true, steps, strict=True)]
    times = times_of(find(stamps), true[-1] + later)
    judged = [times.of(at * 10, time_ms) for at, time_ms in enumerate(stamps)]
    assert all(earlier <= later for earlier, later in pairwise(judged))
    for at, (_, is_ahead) in enumerate(steps):
        next_right = next((true[each] for each in range(at, len(true)) if not steps[each][1]), None)
        if next_right is not None:
            assert true[at] <= judged[at] <= next_right if is_ahead else judged[at] == true[at]


@given(st.lists(st.integers(1, 20), min_size=2).map(sorted))
def test_times_that_never_fall_are_what_they_are(stamps: list[int]) -> None:
    assert find(stamps) == ()


def test_a_stamp_in_the_future_counts_as_what_the_clock_said_next() -> None:
    times = times_of((Fall(50, 9000, 400),), 500)
    assert [times.of(at, stamp) for at, stamp in ((0, 100), (40, 9000), (50, 400), (60, 450))] == [
        100,
        400,
        400,
        450,
    ]


def test_one_record_with_an_early_stamp_makes_no_other_old() -> None:
    times = times_of((Fall(50, 400, 5),), 500)
    assert [times.of(at, stamp) for at, stamp in ((40, 400), (50, 5), (60, 410))] == [400, 400, 410]


def test_a_jump_forward_is_followed_step_by_step_and_one_back_at_once() -> None:
    clock = FakeClock()
    times = StoreTimes(clock)
    begin_ms = times.now_ms()
    clock.jump(_YEAR_S)
    assert times.now_ms() == begin_ms
    assert times.jumped_ms() == _YEAR_S * 1000
    clock.advance(10)
    assert times.now_ms() == begin_ms + 110_000
    clock.advance(24 * _HOUR_S)
    assert times.now_ms() == begin_ms + 110_000 + 24 * _HOUR_MS + MOST_STEP_MS
    clock.jump(-_YEAR_S)
    assert times.now_ms() == clock.now_ms()
    clock.jump(_HOUR_S)  # a clock that was an hour behind is right again within minutes
    for _ in range(36):
        clock.advance(10)
        times.now_ms()
    assert times.jumped_ms() == 0


def test_time_passes_however_often_it_is_looked_at() -> None:
    clock = FakeClock()
    times = StoreTimes(clock)
    begin_ms = times.now_ms()
    begin_s = clock.monotonic
    for look in range(1, 10_001):  # the wall clock goes on by whole milliseconds
        clock.monotonic = begin_s + look * 0.0003
        clock.wall_ms = begin_ms + look * 3 // 10
        times.now_ms()
    assert clock.now_ms() == begin_ms + 3000
    assert times.jumped_ms() <= 1


def test_many_falls_are_noted_in_bounded_room_and_say_no_less() -> None:
    stamps = [1000 + at // 2 - at % 2 * 7 for at in range(4000)]
    falls = find(stamps)
    assert 0 < len(falls) <= MOST_FALLS
    times = times_of(falls, 10_000)
    for at, stamp in enumerate(stamps):
        assert times.oldest_from(at * 10, stamp) <= min(stamps[at:])


def test_what_version_0_1_noted_of_an_adopted_log_is_read(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    notes.put("store_time_fall", struct.pack(">qq", 300, 40))
    falls = read_falls(notes, 1000)
    assert times_of(falls).oldest_from(30, 1100) == 700
    assert times_of(falls).oldest_from(40, 1100) == 1100
    write_falls(notes, (Fall(7, 2, 1),))
    assert read_falls(notes, 1000) == (Fall(7, 2, 1),)


# --- in a store -------------------------------------------------------------------------------


def put(store: MessageStore, text: str, topic: str = "T") -> int:
    """Store time of the message."""
    return store.put([Message(topic, text.encode())]).store_time_ms


def fill(store: MessageStore, segments: int) -> None:
    while store.log.appended_offset < segments * SEGMENT_BYTES:
        store.put([Message("T", bytes(4000))])


def tick(store: MessageStore) -> int:
    """One run of retention as the job makes it."""
    retention = store._services.retention
    retention.reconfigure(replace(store.config, delete_when_hours=tuple(range(24))))
    return retention.run_once()


def test_a_clock_that_was_ahead_once_is_forgotten_within_minutes(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_small(tmp_path / "store", clock, reserved_hours=72.0) as store:
        put(store, "before")
        clock.jump(_YEAR_S)
        ahead_ms = put(store, "ahead")
        assert ahead_ms == clock.now_ms()
        clock.jump(-_YEAR_S)
        assert put(store, "after") == clock.now_ms() < ahead_ms
        clock.jump(-300)  # minutes are carried
        assert put(store, "a little later") == clock.now_ms() + 300_000
        assert store.statistics()["store.time_falls"] == 1
    with open_small(tmp_path / "store", clock, reserved_hours=72.0) as store:
        clock.advance(_HOUR_S)
        assert put(store, "in the next life") == clock.now_ms()
    assert_whole(tmp_path / "store")


def test_the_carry_is_bounded(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_small(tmp_path / "store", clock) as store:
        first_ms = put(store, "x")
        clock.jump(-CARRY_MS / 1000)
        assert put(store, "x") == first_ms
        clock.jump(-0.001)
        assert put(store, "x") == clock.now_ms() < first_ms


def test_segments_expire_behind_a_message_of_next_year(tmp_path: Path) -> None:
    clock = FakeClock()
    root = tmp_path / "store"
    with open_small(root, clock, reserved_hours=72.0) as store:
        clock.jump(_YEAR_S)
        put(store, "ahead")
        clock.jump(-_YEAR_S)
        fill(store, 5)
        store.flush()
    with open_small(root, clock, reserved_hours=72.0) as store:
        assert store.expire() == 0
        clock.advance(73 * _HOUR_S)
        assert store.expire() == 5


def test_a_search_by_time_is_right_across_a_fall(tmp_path: Path) -> None:
    clock = FakeClock()
    root = tmp_path / "store"
    with open_small(root, clock) as store:
        begin_ms = clock.now_ms()
        for number in range(10):
            put(store, f"{number}")
            clock.advance(60)
        clock.jump(_YEAR_S)
        put(store, "ahead")
        clock.jump(-_YEAR_S)
        for number in range(11, 20):
            put(store, f"{number}")
            clock.advance(60)
        for _ in range(2):
            for number in (0, 5, 9, 12, 19):
                at_ms = begin_ms + (number - (number > 10)) * 60_000
                assert store.search_time("T", 0, at_ms, Boundary.LOWER) == number
                assert store.search_time("T", 0, at_ms, Boundary.UPPER) == number
            assert store.search_time("T", 0, clock.now_ms(), Boundary.LOWER) == 20
    with open_small(root, clock) as store:
        assert store.search_time("T", 0, begin_ms + 11 * 60_000, Boundary.LOWER) == 12


def test_a_topic_keeps_what_it_is_to_keep_across_a_fall_and_a_restart(tmp_path: Path) -> None:
    clock = FakeClock()
    root = tmp_path / "store"
    with open_small(root, clock) as store:
        store.create_topics([("T", 1)], {"T": Retention(time_ms=_HOUR_MS)})
        put(store, "before")
        clock.jump(_YEAR_S)
        put(store, "ahead")
        assert store.bounds([("T", 0)]) == [(0, 2)], "a jump forward hides nothing at once"
        clock.jump(-_YEAR_S)
        put(store, "after")
        clock.advance(_HOUR_S / 2)
        put(store, "later")
        assert store.bounds([("T", 0)]) == [(0, 4)]
        clock.advance(_HOUR_S * 3 / 4)
        assert store.bounds([("T", 0)]) == [(3, 4)]
    with open_small(root, clock) as store:
        assert store.bounds([("T", 0)]) == [(3, 4)], "and does not come back"


def test_a_clock_that_is_ahead_drops_nothing_at_once(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_small(tmp_path / "store", clock, reserved_hours=72.0) as store:
        fill(store, 6)
        store.flush()
        clock.jump(_YEAR_S)
        put(store, "ahead")
        for _ in range(36 * 6):  # six hours of ticks every 100 s
            assert tick(store) == 0
            clock.advance(100)
        assert "the clock jumped forward" in (store.health.clock_warning() or "")
        assert store.statistics()["store.clock_jumped_s"] > 300 * 24 * _HOUR_S
        clock.jump(-_YEAR_S)
        assert "behind the last message" in (store.health.clock_warning() or "")
        put(store, "after")
        assert store.health.clock_warning() is None
        clock.advance(73 * _HOUR_S)
        # Two a tick, unless the disk asks, or somebody does.
        assert tick(store) == 2
        assert store.expire() == 4


def test_the_file_of_a_segment_says_how_old_a_stamp_in_the_future_is(tmp_path: Path) -> None:
    clock = FakeClock()
    root = tmp_path / "store"
    with open_small(root, clock, reserved_hours=72.0) as store:
        clock.jump(_YEAR_S)
        fill(store, 2)
        store.flush()
        clock.jump(-_YEAR_S)
        for path in (root / "commitlog").iterdir():
            os.utime(path, (clock.now_ms() / 1000, clock.now_ms() / 1000))
        clock.advance(71 * _HOUR_S)
        assert store.expire() == 0
        clock.advance(2 * _HOUR_S)
        assert store.expire() == 2


def test_time_that_was_left_before_a_clock_was_set_back_is_left_again(tmp_path: Path) -> None:
    clock = FakeClock()
    root = tmp_path / "store"
    with open_small(root, clock) as store:
        clock.jump(_HOUR_S)
        for _ in range(60):
            clock.advance(10)
            store._upkeep.maintain()
        assert store.health.clock_warning() is None, "it is believed by now"
        clock.jump(-_HOUR_S)
        clock.advance(1800)
        store._upkeep.maintain()
        clock.jump(_YEAR_S)
        copy_open(root, tmp_path / "killed")
    right_ms = clock.now_ms() - _YEAR_S * 1000
    with open_small(tmp_path / "killed", clock) as store:
        assert store._times.now_ms() == right_ms


def test_a_restart_does_not_believe_a_clock_that_jumped(tmp_path: Path) -> None:
    clock = FakeClock()
    root = tmp_path / "store"
    with open_small(root, clock, reserved_hours=72.0) as store:
        store.create_topics([("T", 1)], {"T": Retention(time_ms=_HOUR_MS)})
        fill(store, 3)
        copy_open(root, tmp_path / "killed")
    clock.jump(_YEAR_S)
    clock.advance(5)
    for image in (root, tmp_path / "killed"):
        with open_small(image, clock, reserved_hours=72.0) as store:
            store.flush()
            assert store.expire() == 0
            assert store.bounds([("T", 0)])[0].min_offset == 0
            assert "the clock jumped forward" in (store.health.clock_warning() or "")
    # Of a machine that was started again nothing is known but its clock.
    rebooted = FakeClock(clock.now_ms())
    rebooted.monotonic = 1.0
    with open_small(root, rebooted, reserved_hours=72.0) as store:
        store.flush()
        assert store.health.clock_warning() is None
        assert store.expire() == 3


@pytest.mark.parametrize("reclaim", [False, True])
def test_one_damaged_first_record_does_not_end_retention(tmp_path: Path, reclaim: bool) -> None:
    clock = FakeClock()
    root = tmp_path / "store"
    with open_small(root, clock, reserved_hours=72.0) as store:
        fill(store, 5)
        store.flush()
    for segment in (2, 4):
        flip(root / "commitlog" / f"{segment * SEGMENT_BYTES:020}", 200, 1)
    with open_small(root, clock, reserved_hours=72.0, reclaim_unexpired=reclaim) as store:
        clock.advance(71 * _HOUR_S)
        assert store.expire() == 0
        clock.advance(2 * _HOUR_S)
        assert store.expire() == 5
        assert store._services.retention.read_errors == 0


def test_no_live_unit_goes_with_a_clock_set_back_behind_what_expired(tmp_path: Path) -> None:
    """With the real filter, which goes by the machine's clock."""
    root, wall = tmp_path / "store", SystemClock()
    clock = FakeClock(wall.now_ms() - 3 * _HOUR_MS)
    with open_small(root, wall, reserved_hours=1) as store:
        store.log._clock = clock
        fill(store, 2)
        store.flush()
        assert store.expire() == 2
        clock.jump(-5 * _HOUR_S)  # behind what has expired
        for _ in range(20):
            store.put([Message("T", b"early", 1)])
        store.flush()
        store._upkeep._compaction_due = True
        store._upkeep.reclaim()
        assert len(store.pull("T", 1, 0).records) == 20
        copy_open(root, tmp_path / "killed")
    for image in (root, tmp_path / "killed"):
        with open_small(image, wall, reserved_hours=100) as store:
            store._upkeep._compaction_due = True
            store._upkeep.reclaim()
            assert len(store.pull("T", 1, 0).records) == 20


def test_a_fall_is_durable_before_the_record_and_never_noted_on_an_event_loop(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    root = tmp_path / "store"
    with open_small(root, clock, flush_mode=FlushMode.ASYNC) as store:
        put(store, "x")
        clock.jump(-_HOUR_S)
        with pytest.raises(AppendWouldWaitError):
            store.append([Message("T", b"y")], wait=False)
        unit = store.queues.read_units("T", 0, 0, 1)[0][1]
        assert store.log.appended_offset == unit.physical_offset + unit.record_size
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store.notes, "put", _fails)
            with pytest.raises(OSError, match="planted"):
                put(store, "y")
        assert store._times.falls == ()
        end = store.log.appended_offset
        put(store, "y")
        assert read_falls(store.notes, 0)[0].offset == end
        assert unpack_record(store.pull("T", 0, 1).records[0]).store_time_ms == clock.now_ms()
        copy_open(root, tmp_path / "killed")
    findings = inspect_store(tmp_path / "killed").findings
    assert not [each for each in findings if each.kind is Kind.FALLING_TIME]


def _fails(*_: object) -> None:
    raise OSError("planted")


@pytest.mark.parametrize("known", [True, False])
def test_a_live_unit_that_is_older_than_a_dropped_one_stays(tmp_path: Path, known: bool) -> None:
    """With the real filter; what is not `known` does harm, or this would show nothing."""
    root, wall = tmp_path / "store", SystemClock()
    now_ms = wall.now_ms()
    with open_small(root, wall, reserved_hours=1) as store:
        clock = FakeClock(now_ms - 10 * _HOUR_MS)
        store.log._clock = clock
        segment_bytes = store.config.segment_bytes
        while store.log.appended_offset < segment_bytes - 2000:
            store.put([Message("T", b"x" * 1000)])
        clock.wall_ms = now_ms - 2 * _HOUR_MS
        while store.log.appended_offset < segment_bytes + 10_000:
            store.put([Message("T", b"x" * 1000)])
        # As another writer would: ours does not follow a clock that is set back.
        clock.wall_ms = now_ms - 9 * _HOUR_MS
        store.log.last_store_time_ms = 0
        for _ in range(20):
            store.put([Message("T", b"old", 1)])
        if known:
            fall = Fall(store.log.appended_offset, now_ms, now_ms - 9 * _HOUR_MS)
            write_falls(store.notes, (fall,))
    with open_small(root, wall, reserved_hours=1) as store:
        assert store._services.retention.run_once(now=True) == 1
        store._upkeep.reclaim()
        if known:
            assert len(store.pull("T", 1, 0).records) == 20
        else:
            with pytest.raises(DamagedQueueError):
                store.pull("T", 1, 0)
            store._services.repair.wait()


def test_falls_behind_a_lower_end_of_the_log_are_forgotten() -> None:
    """A power loss took the records there, and the note of the fall stayed."""
    clock = FakeClock(10_000)
    times = StoreTimes(clock, (Fall(100, 5000, 3000), Fall(1000, 9000, 4000)))
    times.fall(900, 8000, 4500)
    assert times.of(950, 4600) == 8000
    times.fall(900, 4500, 4000)  # nothing was appended in between
    assert times.falls == (Fall(100, 5000, 3000), Fall(900, 8000, 4500), Fall(900, 4500, 4000))


def test_steady_time_never_falls_and_jumps_no_faster_than_the_other() -> None:
    clock = FakeClock()
    times = StoreTimes(clock)
    begin = times.steady_ms()
    clock.jump(-86_400)
    assert times.steady_ms() == begin
    clock.advance(10)
    assert (times.steady_ms(), times.now_ms()) == (begin + 10_000, begin - 86_390_000)
    clock.jump(2 * 86_400)
    assert times.steady_ms() == begin + 10_000
    clock.advance(1)
    assert times.steady_ms() == begin + 11_000
