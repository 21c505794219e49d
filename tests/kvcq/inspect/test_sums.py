"""Sums of rows: equal for equal rows in any order, and they name what differs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvcq.inspect.sums import RowSums, hashes_of

rows = st.lists(st.tuples(st.binary(max_size=12), st.binary(max_size=6)), unique=True)


@given(rows)
def test_the_same_rows_in_another_order_leave_nothing(each: list[tuple[bytes, bytes]]) -> None:
    sums = RowSums()
    sums.add_expected(hashes_of(each))
    sums.add_found(hashes_of(each[::-1]))
    assert not sums.differ
    assert not len(sums.candidates(hashes_of(each)))


@given(rows, rows)
def test_rows_of_one_side_are_suspects(
    wanted: list[tuple[bytes, bytes]], found: list[tuple[bytes, bytes]]
) -> None:
    sums = RowSums()
    sums.add_expected(hashes_of(wanted))
    sums.add_found(hashes_of(found))
    assert sums.differ == (set(wanted) != set(found))
    for rows_here, rows_there in ((wanted, found), (found, wanted)):
        candidates = {rows_here[index] for index in sums.candidates(hashes_of(rows_here))}
        assert set(rows_here) - set(rows_there) <= candidates
