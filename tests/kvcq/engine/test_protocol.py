"""kvcq/engine/protocol.py: rows in two columns are what a list of pairs is."""

from __future__ import annotations

from kvcq.engine import RowColumns

PAIRS = [(b"a", b"1"), (b"b", b"2")]


def test_rows_in_columns_are_their_pairs() -> None:
    rows = RowColumns([b"a"], [b"1"])
    rows.append((b"b", b"2"))
    assert rows == PAIRS
    assert rows != PAIRS[:1]
    assert len(rows) == 2
    assert dict(rows) == dict(PAIRS)
    assert not RowColumns([], [])
