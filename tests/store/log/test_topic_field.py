"""store/log/topic_field.py: topics of one-byte and two-byte length."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from store.format import MAGIC_V1, MAGIC_V2
from store.log.topic_field import topic_field, topic_fields


def test_topics_of_127_bytes_are_v1() -> None:
    assert topic_field("t" * 127) == (MAGIC_V1, b"\x7f" + b"t" * 127)
    assert topic_field("t" * 128) == (MAGIC_V2, b"\x00\x80" + b"t" * 128)


@given(st.lists(st.sampled_from([1, 9, 127, 128, 255]).map("t".__mul__), min_size=1, max_size=9))
def test_columns_give_what_one_after_the_other_gives(topics: list[str]) -> None:
    magics, fields = topic_fields(topics, b"!")
    if isinstance(magics, int):
        magics = [magics] * len(topics)
    one_by_one = [topic_field(topic) for topic in topics]
    assert list(zip(magics, fields, strict=True)) == [(m, field + b"!") for m, field in one_by_one]
