"""Entries and rows of halves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from store.state import (
    NEVER,
    Entry,
    HalfBegun,
    HalfChecked,
    HalfEnd,
    HalfEnded,
    HalfMoved,
    HalfTables,
    HalvesForgotten,
    changes_of,
    pack_entries,
    unpack_entries,
)
from tests.support.state import GROUPS, TOPICS, DictRows

_I64 = st.integers(0, (1 << 63) - 1)
HALF_ENTRIES = st.one_of(
    st.builds(HalfBegun, GROUPS, TOPICS, _I64, _I64, _I64, _I64),
    st.builds(HalfEnded, _I64, _I64, st.sampled_from(HalfEnd)),
    st.builds(HalfChecked, _I64, st.integers(0, 1 << 30), _I64),
    st.builds(HalfMoved, _I64, _I64),
    st.builds(HalvesForgotten, _I64),
)


@given(st.lists(HALF_ENTRIES, min_size=1, max_size=8))
def test_entries_survive_packing(entries: list[Entry]) -> None:
    ((_, body),) = pack_entries(entries)
    assert unpack_entries(body) == entries


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["begin", "end", "check", "drop"]))))
def test_counts_and_times_follow_the_open_halves(steps: list[tuple[int, str]]) -> None:
    rows = DictRows()
    open_ones: dict[int, tuple[str, bool]] = {}
    tables = HalfTables(rows)
    entry: Entry
    for at, (half, what) in enumerate(steps):
        group = "g" if half % 2 else "h"
        if what == "begin" and half not in open_ones:
            entry = HalfBegun(group, "t", half, 1, at, 100 + at)
            open_ones[half] = group, False
        elif half not in open_ones or what == "begin":
            continue
        elif what == "end":
            entry = HalfEnded(half, at, HalfEnd.COMMITTED)
            del open_ones[half]
        elif what == "check":
            entry = HalfChecked(half, 1, 200 + at)
            open_ones[half] = group, False
        else:
            entry = HalfChecked(half, 2, NEVER)
            open_ones[half] = group, True
        rows.take(changes_of([entry], at, rows))
    for group in ("g", "h", ""):
        own = {half: up for half, (of, up) in open_ones.items() if group in ("", of)}
        assert tables.count(group) == (len(own), sum(own.values()))
        if group:
            due = tables.due(group, NEVER - 1, 100)
            assert sorted(due) == sorted(half for half, up in own.items() if not up)
    assert [row.half for row in tables.open_from(0, 100)] == sorted(open_ones)
    assert dict(tables.counts()).keys() == {group for group, _ in open_ones.values()}
