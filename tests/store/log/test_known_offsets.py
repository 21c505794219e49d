"""Next offsets by a hash of the name: what is known is right, whatever was pushed out."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from store.log.known_offsets import KnownOffsets


class Alike(str):
    """Names whose first hash is the same: the second tells them apart."""

    __slots__ = ()

    def __hash__(self) -> int:
        return 5


class Nothing(str):
    """A name whose first hash is what a free place has."""

    __slots__ = ()

    def __hash__(self) -> int:
        return 0


def names(count: int, first: int = 0) -> list[str]:
    return [f"%LMQ%{number}" for number in range(first, first + count)]


def test_what_is_put_is_known_once() -> None:
    known = KnownOffsets(1 << 20)
    known.put(["a", "b", "c"], [1, 2**32 - 1, 7])
    assert len(known) == 3
    assert known.take(["c", "x", "b"]) == [7, 0, 2**32 - 1]
    assert known.take(["c", "b", "a"]) == [0, 0, 1]
    assert len(known) == 0


def test_what_does_not_fit_is_not_known_and_nothing_older_is_either() -> None:
    known = KnownOffsets(1 << 20)
    known.put(["a", "b", "c"], [1, 2, 3])
    known.put(["a", "b"], [0, 2**32])
    assert len(known) == 1
    assert known.take(["a", "b", "c"]) == [0, 0, 3]


def test_another_name_of_the_same_hash_is_another_name() -> None:
    known = KnownOffsets(1 << 20)
    known.put([Alike("a")], [1])
    assert known.take([Alike("b"), Alike("c")]) == [0, 0]
    known.put([Alike("b")], [2])  # pushes the other one out
    assert known.take([Alike("a"), Alike("b")]) == [0, 2]
    known.put([Nothing("n")], [3])
    assert known.take([Nothing("m"), Nothing("n")]) == [0, 3]


def test_memory_is_bounded_and_what_is_left_is_right() -> None:
    known = KnownOffsets(100 * 160)
    for first in range(0, 5000, 500):
        known.put(names(500, first), range(first + 1, first + 501))
    assert 700 < len(known) <= 800
    found = known.take(names(5000))
    assert sum(map(bool, found)) > 700
    assert all(offset in (0, number + 1) for number, offset in enumerate(found))
    assert len(known) == 0


def test_nearly_all_are_kept_while_there_is_room_and_no_more_is_touched_than_that_takes() -> None:
    known = KnownOffsets(1 << 30)
    for first in range(0, 200_000, 1000):
        known.put(names(1000, first), range(first + 1, first + 1001))
    assert len(known) > 190_000
    assert np.flatnonzero(known._hash[: 1 << 21])[-1] < 800_000
    found = known.take(names(200_000))
    assert sum(map(bool, found)) > 190_000
    assert all(offset in (0, number + 1) for number, offset in enumerate(found))
    assert not known._hash[: 1 << 21].any()


@given(
    st.integers(1, 5),
    st.lists(
        st.one_of(
            st.dictionaries(st.integers(0, 60), st.integers(0, 2**33), min_size=1),
            st.lists(st.integers(0, 60), unique=True, min_size=1),
        ),
        max_size=30,
    ),
)
def test_known_is_what_was_put_last_and_not_taken_since(
    buckets: int, steps: list[dict[int, int] | list[int]]
) -> None:
    known = KnownOffsets(160 * buckets)
    known._size = 1  # so that it grows
    model: dict[int, int] = {}
    for step in steps:
        if isinstance(step, dict):
            known.put([f"%LMQ%{number}" for number in step], list(step.values()))
            model |= step
        else:
            found = known.take([f"%LMQ%{number}" for number in step])
            for number, offset in zip(step, found, strict=True):
                assert offset in (0, model.get(number))
                model[number] = 0
        assert len(known) == np.count_nonzero(known._hash) <= 8 * known._size
