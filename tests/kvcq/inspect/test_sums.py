"""Sums of rows: equal for equal rows in any order, and they name what differs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvcq.inspect.sums import RowSums

rows = st.lists(st.tuples(st.binary(max_size=12), st.binary(max_size=6)), unique=True)


@given(rows)
def test_the_same_rows_in_another_order_leave_nothing(each: list[tuple[bytes, bytes]]) -> None:
    sums = RowSums()
    sums.should_be(each)
    sums.is_there(each[::-1])
    assert not sums.differ
    assert sums.suspects(each) == []


@given(rows, rows)
def test_rows_of_one_side_are_suspects(
    wanted: list[tuple[bytes, bytes]], found: list[tuple[bytes, bytes]]
) -> None:
    sums = RowSums()
    sums.should_be(wanted)
    sums.is_there(found)
    assert sums.differ == (set(wanted) != set(found))
    assert set(wanted) - set(found) <= set(sums.suspects(wanted))
    assert set(found) - set(wanted) <= set(sums.suspects(found))
