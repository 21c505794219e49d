"""Store times that fall along a log which somebody else wrote: expiry leaves what lives alone."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.base import SystemClock
from store.consume_queue import DispatchRequest
from store.derive.time_fall import TimeFall, TimeFallFinder, read_time_fall, write_time_fall
from store.errors import DamagedQueueError
from store.message import Message
from tests.support.fake_clock import FakeClock
from tests.support.stores import open_small

if TYPE_CHECKING:
    from pathlib import Path

_HOUR_MS = 3_600_000


def find(times: list[int]) -> TimeFall:
    """What is found in records of 10 bytes with these store times."""
    finder = TimeFallFinder()
    for at, time_ms in enumerate(times):
        finder.look([DispatchRequest("T", 0, at, at * 10, 10, 0, time_ms, (), (), True)])
    return finder.found


@given(st.lists(st.integers(0, 20), max_size=40), st.lists(st.integers(0, 5), max_size=5))
def test_no_record_is_older_than_where_the_line_is_drawn(
    foreign: list[int], steps: list[int]
) -> None:
    fall = find(foreign)
    times = list(foreign)
    for step in steps:  # ours, appended behind it, never fall
        times.append((times[-1] if times else 0) + step)
    for begin, time_ms in enumerate(times):
        assert min(times[begin:]) >= fall.expired_before_ms(begin * 10, time_ms)


@given(st.lists(st.integers(0, 20), min_size=2).map(sorted))
def test_times_that_never_fall_move_no_line(times: list[int]) -> None:
    assert all(earlier <= later for earlier, later in pairwise(times))
    assert find(times) == TimeFall()


def test_the_line_is_where_it_was_once_the_fall_is_dropped() -> None:
    fall = find([100, 500, 200, 400, 600, 700])
    assert fall == TimeFall(300, 40)
    assert fall.expired_before_ms(30, 400) == 100
    assert fall.expired_before_ms(40, 600) == 600


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
            write_time_fall(store.metadata, TimeFall(7 * _HOUR_MS, store.log.appended_offset))
    with open_small(root, wall, reserved_hours=1) as store:
        assert store._services.retention.run_once(now=True) == 1
        store._upkeep.reclaim()
        if known:
            assert read_time_fall(store.metadata).by_ms == 7 * _HOUR_MS
            assert len(store.pull("T", 1, 0).records) == 20
        else:
            with pytest.raises(DamagedQueueError):
                store.pull("T", 1, 0)
            store._repair.wait()
