"""Next offsets by a hash of the name: what is known is right, whatever was pushed out."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.log.known_offsets import KnownOffsets

if TYPE_CHECKING:
    from collections.abc import Sequence


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


def put(known: KnownOffsets, texts: Sequence[str], offsets: Sequence[int]) -> None:
    looked = known.find(texts)
    known.put(looked, offsets)
    count = len(known)
    known.put(looked, offsets)
    assert len(known) == count


def find(known: KnownOffsets, *texts: str) -> list[int]:
    found: list[int] = known.find(texts).offsets.tolist()
    assert found == [known.get(text) for text in texts]
    return found


def test_what_is_put_is_known_until_it_is_forgotten() -> None:
    known = KnownOffsets(1 << 20)
    put(known, ["a", "b", "c"], [1, 2**32 - 1, 7])
    assert len(known) == 3
    assert find(known, "c", "x", "b") == [7, 0, 2**32 - 1]
    put(known, ["x", "c"], [4, 8])
    assert find(known, "c", "b", "a", "x") == [8, 2**32 - 1, 1, 4]
    known.forget("b")
    known.forget("y")
    assert find(known, "c", "b", "a", "x") == [8, 0, 1, 4]
    assert len(known) == 3


def test_what_does_not_fit_is_not_known_and_nothing_older_is_either() -> None:
    known = KnownOffsets(1 << 20)
    put(known, ["a", "b", "c"], [1, 2, 3])
    put(known, ["a", "b"], [0, 2**32])
    assert len(known) == 1
    assert find(known, "a", "b", "c") == [0, 0, 3]


def test_another_name_of_the_same_hash_is_another_name() -> None:
    known = KnownOffsets(1 << 20)
    put(known, [Alike("a")], [1])
    assert find(known, Alike("b"), Alike("c")) == [0, 0]
    put(known, [Alike("b")], [2])  # pushes the other one out
    assert find(known, Alike("a"), Alike("b")) == [0, 2]
    put(known, [Nothing("n")], [3])
    assert find(known, Nothing("m"), Nothing("n")) == [0, 3]


def test_one_that_is_known_and_one_that_pushes_it_out_come_together() -> None:
    for texts in (("a", "b"), ("b", "a")):
        known = KnownOffsets(1 << 20)
        put(known, [Alike("a")], [1])
        put(known, [Alike(text) for text in texts], [{"a": 2, "b": 7}[text] for text in texts])
        assert find(known, Alike("a"), Alike("b")) in ([2, 0], [0, 7])


def test_a_put_that_was_interrupted_before_it_counted_leaves_no_number_below_zero(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = KnownOffsets(1 << 20)
    looked = known.find(["a", "b"])
    with monkeypatch.context() as patch:
        patch.setattr(np, "count_nonzero", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            known.put(looked, [1, 2])
    known.put(looked, [1, 2])
    known.forget("a")
    assert find(known, "a", "b") == [0, 2]
    assert len(known) == 0  # wrong, but a number


def test_memory_is_bounded_and_what_is_left_is_right() -> None:
    known = KnownOffsets(100 * 160)
    for first in range(0, 5000, 500):
        put(known, names(500, first), range(first + 1, first + 501))
    assert 700 < len(known) <= 800
    found = find(known, *names(5000))
    assert sum(map(bool, found)) == len(known)
    assert all(offset in (0, number + 1) for number, offset in enumerate(found))


def test_nearly_all_are_kept_while_there_is_room_and_no_more_is_touched_than_that_takes() -> None:
    known = KnownOffsets(1 << 30)
    for first in range(0, 200_000, 1000):
        known.put(known.find(names(1000, first)), range(first + 1, first + 1001))
    assert len(known) > 190_000
    assert np.flatnonzero(known._hash[: 1 << 21])[-1] < 800_000
    found = find(known, *names(200_000))
    assert sum(map(bool, found)) > 190_000
    assert all(offset in (0, number + 1) for number, offset in enumerate(found))


@given(
    st.integers(1, 5),
    st.lists(
        st.one_of(
            st.dictionaries(st.integers(0, 60), st.integers(0, 2**33), min_size=1),
            st.lists(st.integers(0, 60), unique=True, min_size=1),
            st.integers(0, 60),
        ),
        max_size=30,
    ),
)
def test_known_is_what_was_put_last_and_not_forgotten_since(
    buckets: int, steps: list[dict[int, int] | list[int] | int]
) -> None:
    known = KnownOffsets(160 * buckets)
    known._size = 1  # so that it grows
    model: dict[int, int] = {}
    for step in steps:
        if isinstance(step, dict):
            put(known, [f"%LMQ%{number}" for number in step], list(step.values()))
            model |= step
        elif isinstance(step, int):
            known.forget(f"%LMQ%{step}")
            model[step] = 0
        else:
            found = find(known, *(f"%LMQ%{number}" for number in step))
            for number, offset in zip(step, found, strict=True):
                assert offset in (0, model.get(number))
        assert len(known) == np.count_nonzero(known._hash) <= 8 * known._size
