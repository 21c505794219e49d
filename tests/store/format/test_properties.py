"""The property string, read as RocketMQ reads it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.format.properties import (
    decode_properties,
    encode_properties,
    index_keys,
    last_value,
    light_queues,
)
from tests.support.log_writer import decode_properties as decode_slowly

names = st.text(
    st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=8
)
values = st.text(
    st.characters(exclude_characters="\x02", exclude_categories=["Cs"]), min_size=1, max_size=12
)


def test_golden_string() -> None:
    properties = {"KEYS": "k1 k2", "TAGS": "TagA", "UNIQ_KEY": "0A0000010D2A2A9F0001"}
    text = encode_properties(properties)
    assert text == "KEYS\x01k1 k2\x02TAGS\x01TagA\x02UNIQ_KEY\x010A0000010D2A2A9F0001\x02"
    assert len(text) == 51


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("a\x01b\x02", {"a": "b"}),
        ("a\x01b", {"a": "b"}),  # older releases leave the last separator out
        ("a\x01\x02", {}),  # empty values vanish
        ("\x01b\x02", {}),
        ("ab\x02", {}),
        ("\x01bb\x02", {}),
        ("abc\x02", {}),
        ("a\x01b\x01c\x02", {"a": "b\x01c"}),  # a value may hold 01
        ("a\x01b\x02a\x01c\x02", {"a": "c"}),  # a later one wins
        ("\x02\x02a\x01b\x02\x02", {"a": "b"}),
    ],
)
def test_odd_strings(text: str, found: dict[str, str]) -> None:
    assert decode_properties(text) == found


@given(st.dictionaries(names, values, max_size=6))
def test_round_trip(properties: dict[str, str]) -> None:
    assert decode_properties(encode_properties(properties)) == properties


@given(st.text(st.sampled_from("ab\x01\x02"), max_size=24))
def test_any_string_reads_as_a_plain_decoder_reads_it(text: str) -> None:
    assert decode_properties(text) == decode_slowly(text.encode())


@given(st.text(st.sampled_from("ab\x01\x02"), max_size=24), st.sampled_from(["a", "b", "ab"]))
def test_one_value_is_found_as_among_all(text: str, name: str) -> None:
    assert last_value(text.encode(), name) == decode_properties(text).get(name, "")


def test_empty_values_are_not_written() -> None:
    assert encode_properties({"a": "", "b": "c"}) == "b\x01c\x02"


@pytest.mark.parametrize(
    ("properties", "keys"),
    [
        ({}, ()),
        ({"KEYS": "k1"}, ("k1",)),
        ({"KEYS": " k1  k2 k1 "}, ("k1", "k2")),
        ({"UNIQ_KEY": "u"}, ("u",)),
        ({"UNIQ_KEY": "u", "KEYS": "k1 u k2"}, ("u", "k1", "k2")),
    ],
)
def test_index_keys(properties: dict[str, str], keys: tuple[str, ...]) -> None:
    assert index_keys(properties) == keys


@pytest.mark.parametrize(
    ("names", "offsets", "found"),
    [
        ("%LMQ%a", "5", (("%LMQ%a", 5),)),
        ("%LMQ%a,%LMQ%b", "5,0", (("%LMQ%a", 5), ("%LMQ%b", 0))),
        ("%LMQ%a,%LMQ%b", "5", ()),  # the lists differ
        ("%LMQ%a,other", "5,", (("%LMQ%a", 5),)),  # RocketMQ leaves others without an offset (H15)
        ("%LMQ%a", "x", ()),
        ("%LMQ%a", "-1", ()),
        ("%LMQ%a", "²", ()),
        ("%LMQ%a,%LMQ%a", "5,6", (("%LMQ%a", 5),)),  # one unit a queue (H28)
        ("%LMQ%a", str(2**63 - 1), (("%LMQ%a", 2**63 - 1),)),
        ("%LMQ%a,%LMQ%b", f"{2**63},1", (("%LMQ%b", 1),)),  # fits no unit: would stop dispatch
        ("%LMQ%a", "9" * 5000, ()),
    ],
)
def test_light_queues(names: str, offsets: str, found: tuple[tuple[str, int], ...]) -> None:
    properties = {"INNER_MULTI_DISPATCH": names, "INNER_MULTI_QUEUE_OFFSET": offsets}
    assert light_queues(properties) == found


def test_no_light_queues() -> None:
    assert light_queues({}) == ()
    assert light_queues({"INNER_MULTI_DISPATCH": "%LMQ%a"}) == ()
