"""Topics of one-byte and two-byte length, in single records and in columns."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from store.format import MAGIC_V1, MAGIC_V2, TOPIC_HEADS
from store.log.plain_records import topic_fields


def test_topics_of_127_bytes_are_v1() -> None:
    assert TOPIC_HEADS[127] == (MAGIC_V1, b"\x7f")
    assert TOPIC_HEADS[128] == (MAGIC_V2, b"\x00\x80")


@given(st.lists(st.sampled_from([1, 9, 127, 128, 255]).map("t".__mul__), min_size=1, max_size=9))
def test_columns_give_what_one_after_the_other_gives(topics: list[str]) -> None:
    magics, fields = topic_fields(topics, b"!")
    if isinstance(magics, int):
        magics = [magics] * len(topics)
    heads = [TOPIC_HEADS[len(topic)] for topic in topics]
    assert magics == [magic for magic, _ in heads]
    assert fields == [
        length + topic.encode() + b"!" for (_, length), topic in zip(heads, topics, strict=True)
    ]
