"""Cuts of the key space: rows are parted as their whole keys sort."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kvcq.tables.keys import topic_prefix
from migration.columnar.derived_rows import IndexRows, UnitRows
from migration.columnar.key_cuts import IndexKey, KeyCuts, whole_key
from migration.columnar.sorted_files import row_keys
from migration.columnar.strings import Strings, coded
from tests.support.rows import index_key

#: Few and alike, so that rows meet the cuts; some of one word, of two, and between.
NAMES = st.sampled_from(["a", "b", "key-0001", "key-0002", "key-00010", "key-000100000001", "é"])
ROWS = st.tuples(NAMES, NAMES, st.integers(0, 2), st.integers(0, 2))


def sort_key(topic: str, key: str, time_ms: int, place: int) -> IndexKey:
    return topic_prefix(topic), len(key.encode()), key.encode(), time_ms, place


def index_rows(rows: list[tuple[str, str, int, int]]) -> IndexRows:
    topics, prefixes = coded([topic_prefix(topic) for topic, *_ in rows])
    keys = Strings.of([key.encode() for _, key, _, _ in rows])
    times, places = (np.array([row[at] for row in rows], dtype=np.int64) for at in (2, 3))
    return IndexRows(prefixes, topics, keys, times, places)


@given(st.lists(ROWS, max_size=30), st.lists(ROWS, max_size=4, unique=True))
def test_index_rows_are_parted_as_their_keys_sort(
    rows: list[tuple[str, str, int, int]], edges: list[tuple[str, str, int, int]]
) -> None:
    cuts = KeyCuts((), tuple(sorted(sort_key(*edge) for edge in edges)))
    whole = [whole_key(edge) for edge in cuts.index_edges]
    assert whole == sorted(index_key(*edge) for edge in edges)
    made = index_rows(rows)
    keys = row_keys(made)
    assert keys == [index_key(*row) for row in rows]
    expected = [1 + sum(edge <= key for edge in whole) for key in keys]
    assert cuts.index_parts(made).tolist() == expected


def test_units_are_parted_as_their_keys_sort() -> None:
    cuts = KeyCuts(((b"aa", 5), (b"aa", 9), (b"cc", 0)), ())
    keys = [(b"a", 9), (b"aa", 0), (b"aa", 5), (b"aa", 8), (b"aa", 9), (b"b", 1), (b"cc", 0)]
    queues, prefixes = coded([prefix for prefix, _ in keys])
    offsets = np.array([offset for _, offset in keys])
    units = UnitRows(prefixes, queues, offsets, offsets, offsets, offsets, offsets)
    assert cuts.unit_parts(units).tolist() == [0, 0, 1, 1, 2, 2, 3]
