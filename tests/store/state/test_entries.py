"""Entries come back as they were packed; what is not one is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import InvalidArgumentError
from store.metadata import KEEP_ALL
from store.state import CorruptStateError, TopicsMade, pack_entries, unpack_entries
from store.state.packing import MOST_BYTES
from tests.support.state import ANY_ENTRIES


@given(st.lists(ANY_ENTRIES, max_size=20))
def test_entries_come_back_in_order(entries: list) -> None:  # type: ignore[type-arg]
    bodies = [body for _, body in pack_entries(entries)]
    assert len(bodies) == bool(entries)
    assert [each for body in bodies for each in unpack_entries(body)] == entries


def test_many_entries_are_divided_between_records() -> None:
    entries = [TopicsMade([f"topic-{n:06}"], 8, 5, KEEP_ALL) for n in range(20_000)]
    bodies = [body for _, body in pack_entries(entries)]
    assert len(bodies) > 2
    assert max(map(len, bodies)) < MOST_BYTES + 1000
    assert [each for body in bodies for each in unpack_entries(body)] == entries


@given(st.lists(ANY_ENTRIES, min_size=1, max_size=5), st.data())
def test_a_body_that_was_cut_is_refused_or_has_fewer_entries(
    entries: list,  # type: ignore[type-arg]
    data: st.DataObject,
) -> None:
    ((_, body),) = pack_entries(entries)
    size = data.draw(st.integers(0, len(body) - 1))
    try:
        found = unpack_entries(body[:size])
    except CorruptStateError:
        return
    assert found == entries[: len(found)]
    assert len(found) < len(entries)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"\x02\x00\x00\x00\x00", r"form 2.*newer"),
        (b"\x01\x00\x00\x00\x00\x63", r"kind 99.*newer"),
        (b"", "cannot be read"),
        (b"\x01\x00\x00\x00\x02\xff\xfe", "cannot be read"),
        (b"\x01\x00\x00\x00\x00\x03\x00\x01", "cannot be read"),
    ],
    ids=["newer form", "newer kind", "empty", "no text", "no such name"],
)
def test_what_no_program_of_ours_wrote_is_refused(body: bytes, words: str) -> None:
    with pytest.raises(CorruptStateError, match=words):
        unpack_entries(body)


def test_a_name_with_what_stands_between_names_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="Ctrl1"):
        list(pack_entries([TopicsMade(["x\x01"], 1, 0, KEEP_ALL)]))
