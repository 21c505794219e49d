"""Handles are read as they were made, and nothing else is one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import InvalidArgumentError
from store.groups.handles import Handle, pack_handle, unpack_handle

_GROUPS = st.sampled_from(["g", "ga", "ö"])
_OFFSETS = st.integers(0, (1 << 63) - 1)
_TOPICS = st.one_of(st.sampled_from(["T", "%LMQ%$room$1", "ü"]), st.text("ab%", min_size=1))
HANDLES = st.builds(
    Handle, _TOPICS, _OFFSETS, st.integers(0, 1 << 20), _OFFSETS, st.integers(1, (1 << 63) - 1)
)


@given(_GROUPS, HANDLES)
def test_what_was_packed_is_unpacked(group: str, handle: Handle) -> None:
    text = pack_handle(group, handle)
    assert unpack_handle(group, text, "handle") == handle
    assert text.isascii()
    assert not set(text) & set("+/= ")


@given(_GROUPS, HANDLES, st.data())
def test_a_changed_handle_is_none(group: str, handle: Handle, data: st.DataObject) -> None:
    text = pack_handle(group, handle)
    at = data.draw(st.integers(0, len(text) - 1))
    with_other = text[:at] + data.draw(st.characters()) + text[at + 1 :]
    for other in (with_other, text[:at], text + "A", text[:at] + text[at + 1 :]):
        if other != text and _means(other) != _means(text):
            with pytest.raises(InvalidArgumentError) as caught:
                unpack_handle(group, other, "handles[3]")
            assert caught.value.field == "handles[3]"


def _means(text: str) -> str:
    """Bits of the last character may mean nothing."""
    return text[:-1] if len(text) % 4 else text


@given(HANDLES)
def test_a_handle_of_another_group_is_none(handle: Handle) -> None:
    text = pack_handle("g", handle)
    for group in ("ga", "h", "g\0"):
        with pytest.raises(InvalidArgumentError):
            unpack_handle(group, text, "handle")


@given(st.text(max_size=200))
def test_any_other_text_is_none(text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        unpack_handle("g", text, "handle")


def test_a_long_handle_of_a_long_name_is_read() -> None:
    handle = Handle("%LMQ%" + "n" * 250, 0, 0, 5, 7)
    assert unpack_handle("g" * 255, pack_handle("g" * 255, handle), "handle") == handle
