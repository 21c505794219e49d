"""Handles are read as they were made, and nothing else is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import InvalidArgumentError
from store.groups.handles import Head, pack_handles, unpack_handles

if TYPE_CHECKING:
    from random import Random

_GROUPS = st.sampled_from(["g", "ga", "ö"])
_OFFSETS = st.integers(0, (1 << 63) - 1)
_TOPICS = st.one_of(st.sampled_from(["T", "%LMQ%$room$1", "ü"]), st.text("ab%", min_size=1))
HEADS = st.builds(Head, _TOPICS, _OFFSETS, st.integers(0, 1 << 20), st.integers(1, (1 << 63) - 1))
_MANY = st.lists(
    st.tuples(HEADS, st.lists(_OFFSETS, min_size=1, max_size=9)), min_size=1, max_size=4
)


@given(_GROUPS, _MANY, st.randoms())
def test_what_was_packed_is_unpacked(
    group: str, leases: list[tuple[Head, list[int]]], chance: Random
) -> None:
    named = [
        (text, head, offset)
        for head, offsets in leases
        for text, offset in zip(pack_handles(group, head, offsets), offsets, strict=True)
    ]
    chance.shuffle(named)
    found = {}
    for handles in unpack_handles(group, [text for text, _, _ in named], "handles"):
        assert handles.places == sorted(handles.places)
        for place, offset in zip(handles.places, handles.queue_offsets, strict=True):
            found[place] = (handles.head, offset)
    assert [found[at] for at in range(len(named))] == [each[1:] for each in named]
    assert all(text.isascii() and not set(text) & set("+/= ") for text, _, _ in named)


@given(_GROUPS, HEADS, _OFFSETS, st.data())
def test_a_changed_handle_is_none(group: str, head: Head, offset: int, data: st.DataObject) -> None:
    (good,) = pack_handles(group, head, [1])
    (text,) = pack_handles(group, head, [offset])
    at = data.draw(st.integers(0, len(text) - 1))
    with_other = text[:at] + data.draw(st.characters()) + text[at + 1 :]
    for other in (with_other, text[:at], text + "A", text[:at] + text[at + 1 :], text + "AAAA"):
        if other != text:
            with pytest.raises(InvalidArgumentError) as caught:
                unpack_handles(group, [good, text, other, good], "handles")
            assert caught.value.field == "handles[2]"


@given(HEADS, _OFFSETS)
def test_a_handle_of_another_group_is_none(head: Head, offset: int) -> None:
    for group in ("ga", "h", "g\0"):
        with pytest.raises(InvalidArgumentError):
            unpack_handles(group, pack_handles("g", head, [offset]), "handles")


@given(st.text(max_size=200))
def test_any_other_text_is_none(text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        unpack_handles("g", [text], "handles")


def test_a_long_handle_of_a_long_name_is_read() -> None:
    head = Head("%LMQ%" + "n" * 250, 0, 0, 7)
    (found,) = unpack_handles("g" * 255, pack_handles("g" * 255, head, [5]), "handles")
    assert found == (head, [0], [5])
