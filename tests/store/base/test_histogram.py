"""store/base/histogram.py: counts between bounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from store.base import Histogram


def test_a_value_on_a_bound_is_below_it() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 2.5):
        histogram.add(value)
    histogram.add(3.0, times=4)
    counted = histogram.read()
    assert counted.counts == (2, 2, 5)
    assert (counted.times, counted.total) == (9, 19.5)


@given(st.lists(st.tuples(st.integers(-5, 15), st.integers(1, 9))))
def test_each_value_is_counted_once(values: list[tuple[int, int]]) -> None:
    histogram = Histogram((0, 3, 10))
    for value, times in values:
        histogram.add(value, times)
    counted = histogram.read()
    for bound, below in zip(counted.bounds, (1, 2, 3), strict=True):
        expected = sum(times for value, times in values if value <= bound)
        assert sum(counted.counts[:below]) == expected
    assert counted.times == sum(times for _, times in values)
    assert counted.total == sum(value * times for value, times in values)
