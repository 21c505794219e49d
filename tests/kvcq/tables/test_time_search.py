"""P11: search by time, the whole boundary table, and against a plain search."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcq.tables.time_search import search_time
from store.consume_queue import Boundary

TABLE = [
    (50, 0, 0),
    (100, 0, 2),
    (200, 3, 2),
    (300, 3, 4),
    (400, 5, 4),
]


@pytest.mark.parametrize(("time_ms", "lower", "upper"), TABLE)
def test_p11_the_boundary_table(time_ms: int, lower: int, upper: int) -> None:
    times = [100, 100, 100, 300, 300]
    assert search_time(0, 5, time_ms, Boundary.LOWER, times.__getitem__) == lower
    assert search_time(0, 5, time_ms, Boundary.UPPER, times.__getitem__) == upper


def test_p11_an_empty_queue_answers_its_min_and_reads_nothing() -> None:
    def fail(_: int) -> int:
        raise AssertionError("nothing to read")

    assert search_time(7, 7, 100, Boundary.LOWER, fail) == 7
    assert search_time(7, 7, 100, Boundary.UPPER, fail) == 7


@given(
    st.lists(st.integers(0, 20), min_size=1, max_size=30).map(sorted),
    st.integers(0, 5),
    st.integers(-1, 21),
)
def test_p11_equals_a_plain_search(times: list[int], start: int, time_ms: int) -> None:
    end = start + len(times)

    def at(offset: int) -> int:
        assert start <= offset < end
        return times[offset - start]

    later = [offset for offset in range(start, end) if at(offset) >= time_ms]
    earlier = [offset for offset in range(start, end) if at(offset) <= time_ms]
    lower = later[0] if later else end
    upper = earlier[-1] if earlier else start
    assert search_time(start, end, time_ms, Boundary.LOWER, at) == lower
    assert search_time(start, end, time_ms, Boundary.UPPER, at) == upper
