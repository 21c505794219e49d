"""Names and offsets of light queues by columns are those of each name by itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.light_columns import LightNames

_names = st.one_of(
    st.sampled_from(["%LMQ%a", "%LMQ%b"]),
    st.integers(0, 2000).map(lambda number: f"%LMQ%{number}"),
    st.text(st.sampled_from("ab"), min_size=1, max_size=30).map("%LMQ%far-away-".__add__),
    st.just("%LMQ%größe"),
)
_lists = st.lists(st.lists(_names, max_size=20), min_size=1, max_size=20)


def columns(lists: list[list[str]]) -> LightNames:
    return LightNames(",".join(name for names in lists for name in names), list(map(len, lists)))


@given(_lists.filter(any))
def test_names_are_sorted_once_and_those_of_one_queue_stay_in_order(lists: list[list[str]]) -> None:
    flat = [name for names in lists for name in names]
    found = columns(lists)
    assert found.flat == flat
    assert [list(found.of(message)) for message in range(len(lists))] == lists
    assert len(found) == len(flat)
    assert found.lengths.tolist() == [len(name.encode()) for name in flat]
    order = sorted(range(len(flat)), key=lambda at: (len(flat[at].encode()), flat[at].encode()))
    assert found.order.tolist() == order
    assert sorted(found.different) == sorted(set(flat))
    assert found.repeat_in_a_message == any(len(set(names)) < len(names) for names in lists)
    for length in set(found.lengths.tolist()):
        places = np.flatnonzero(found.lengths == length)
        rows = [row.tobytes().decode() for row in found.bytes_of(places, length)]
        assert rows == [flat[at] for at in places]


@given(_lists.filter(any), st.data())
def test_offsets_are_taken_one_after_the_other(lists: list[list[str]], data: st.DataObject) -> None:
    found = columns(lists)
    start = {name: hash(name) % 1000 for name in found.different}
    units, following = found.take(np.array(list(start.values())))
    expected = []
    model = dict(start)
    for names in lists:
        places = []
        for name in names:
            places.append((name, model[name]))
            model[name] += 1
        expected.append(tuple(places))
    assert list(units) == expected
    assert dict(zip(found.different, following.tolist(), strict=True)) == model
    begin = data.draw(st.integers(0, len(lists)))
    part = slice(begin, data.draw(st.integers(begin, len(lists))))
    some = units[part]
    assert list(some) == expected[part]
    flat = [place for places in expected[part] for place in places]
    assert list(zip(some.flat_names, some.flat_offsets.tolist(), strict=True)) == flat
    order, is_last = some.order
    assert order.tolist() == [at for at in found.order.tolist() if at in some.places]
    last = {found.flat[at]: at for at in order.tolist()}
    assert sorted(order[is_last].tolist()) == sorted(last.values())


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("%LMQ%a,%LMQ%b", [1]),
        ("%LMQ%a", [1, 1]),
        ("", [0]),
        ("", [1]),
        ("%LMQ%a,", [2]),
        ("%LMQ%" + "x" * 251, [1]),
        (",".join(["%LMQ%a"] * 999 + ["%LMQ%" + "x" * 99]), [1000]),
    ],
)
def test_what_cannot_be_columns_is_said(text: str, counts: list[int]) -> None:
    with pytest.raises(ValueError, match=r"names and counts|bytes"):
        LightNames(text, counts)
