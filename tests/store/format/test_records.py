"""A run of records is a sequence of them."""

from __future__ import annotations

import pytest

from store.format.records import Records


def test_records_are_a_sequence() -> None:
    items = [b"a", b"bb", b"c"]
    run = Records.back_to_back(b"abbc", [1, 3, 4])
    assert (run[0], run[-1], list(run[1:]), len(run[:2])) == (items[0], items[-1], items[1:], 2)
    assert items[1] in run
    with pytest.raises(IndexError):
        run[3]
    both = Records.of_runs([run, Records(items[:1])])
    assert both == [*items, items[0]]
    assert Records.of_runs([run]) is run
    assert Records.of_runs([]) == []
    assert run != items[:2]
    assert run != 3
