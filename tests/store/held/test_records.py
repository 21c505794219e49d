"""What is made of messages that are held."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import InvalidArgumentError
from store.format import (
    MAX_LIGHT_QUEUES,
    decode_properties,
    prepare_again,
    prepare_all,
    unpack_record,
)
from store.held import acceptable
from store.held.records import (
    TIMER_DELIVER,
    TIMER_OUT,
    delivered,
    prepare_waiting,
    ready,
    waiting,
)
from store.log.batch_encoder import BatchEncoder
from store.log.queue_offsets import Hot
from store.message import Message, StoredMessage
from store.puts import MOST_BODY_BYTES
from store.state import TIMER_TOPIC

if TYPE_CHECKING:
    from collections.abc import Mapping

    from store.format import Prepared

_WORDS = st.text("aäk", min_size=1, max_size=5)


def test_what_is_left_of_a_message_says_whether_its_body_is_compressed() -> None:
    full = Message("T", b"zipped", tag="t", properties={"p": "v" * 32_760}, flag=7, sys_flag=1)
    left = Message("T", b"zipped", properties={"own": "x"}, flag=7, sys_flag=1)
    assert acceptable(full, {"own": "x"}) == left
    assert acceptable(left, {}) is left


@given(
    tag=st.one_of(st.just(""), _WORDS),
    keys=st.lists(_WORDS, max_size=3),
    properties=st.dictionaries(st.sampled_from(["UNIQ_KEY", "a", "b"]), _WORDS),
    light=st.lists(st.sampled_from(["%LMQ%a", "%LMQ%b"]), max_size=2, unique=True),
)
def test_what_waited_is_prepared_as_if_its_producer_put_it(
    tag: str, keys: list[str], properties: Mapping[str, str], light: list[str]
) -> None:
    message = Message("T", b"x", 3, tag, tuple(keys), tuple(light), properties, 7, 1, 5)
    held = waiting(TIMER_TOPIC, message, {TIMER_OUT: "9", TIMER_DELIVER: "9"})
    (prepared,) = prepare_waiting([held], MOST_BODY_BYTES)
    found = decode_properties(prepared.properties.decode())
    host = message.born_host
    was = StoredMessage(TIMER_TOPIC, 0, 4, 88, 99, 7, 1, 5, host, 6, host, 0, 0, 0, b"x", found)
    again = delivered(was, (TIMER_DELIVER,))
    assert_ready(held, prepared)
    expected = message._replace(properties={**properties, TIMER_DELIVER: "9"})
    assert again == expected
    assert [prepare_again(again)] == prepare_all([expected], MOST_BODY_BYTES, MAX_LIGHT_QUEUES)


def assert_ready(held: Message, prepared: Prepared) -> None:
    """Assert that `ready` finds in the record what reading all of its fields finds."""
    for crc_item, port in ((True, 1), (False, 2)):
        hot = Hot()
        hot.queues[TIMER_TOPIC, 0] = 4
        encoder = BatchEncoder(("127.0.0.1", port), crc_item=crc_item)
        record = b"".join(encoder.encode([held], [prepared], 0, hot, 88, 1 << 20, 6).parts)
        for kept in ((TIMER_DELIVER,), ()):
            message = delivered(unpack_record(record), kept)
            found = ready(record, kept)
            assert found.prepared == prepare_again(message)
            bare = message._replace(tag="", keys=(), properties=None)
            assert found.message._replace(tag="", keys=(), properties=None) == bare


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("topic", ["T", "t" * 200])
def test_what_waited_is_found_in_its_record(topic: str, host: str) -> None:
    message = Message(
        topic, b"x" * 300, 2, "t", ("a", "b"), (), {"a": "1\x012"}, born_host=(host, 9)
    )
    held = waiting(TIMER_TOPIC, message, {TIMER_OUT: "9", TIMER_DELIVER: "9"})
    (prepared,) = prepare_waiting([held], MOST_BODY_BYTES)
    assert_ready(held, prepared)


def test_what_damage_made_of_light_queues_is_not_taken() -> None:
    with pytest.raises(InvalidArgumentError):
        prepare_again(Message("T", b"", light_queues=("%LMQ%a b",)))
