"""Messages as they are sent, against messages as the service reads them."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcq_client.format.outgoing import (
    FRAME_BYTES,
    SHARDING_KEY,
    Checker,
    as_bytes,
    put_stream_request,
    write_to,
)
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.producing.accumulator import Accumulator
from kvcq_client.producing.config import ProducerConfig
from kvcq_client.values import Message
from server.wire.messages_in import request_in
from server.wire.put_limits import Budget

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kvcq_client.format import Outgoing


class Named(NamedTuple):
    """An Outgoing with names for its fields."""

    topic: str
    body: bytes
    queue_id: int | None
    tag: str
    keys: Sequence[str]
    light_queues: Sequence[str]
    properties: Mapping[str, str] | None
    flag: int
    born_time_ms: int | None
    ordering_key: str = ""


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
lists = st.lists(texts, max_size=3).map(tuple)
messages = st.builds(
    Named,
    topic=st.sampled_from(["a", "b", "é"]) | texts,
    body=st.binary(max_size=40) | st.integers(0, 20_000).map(bytes),
    queue_id=st.none() | st.integers(0, (1 << 31) - 1),
    tag=st.just("") | texts,
    keys=st.just(()) | lists,
    light_queues=st.just(()) | lists,
    properties=st.none() | st.dictionaries(texts, texts, max_size=2),
    flag=st.just(0) | st.integers(-(1 << 31), (1 << 31) - 1),
    born_time_ms=st.just(0) | st.integers(0, 1 << 50),
)
ordering_keys = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=20)
#: One with an ordering key names no queue.
messages |= st.builds(
    lambda message, key: message._replace(queue_id=None, ordering_key=key),
    *(messages, ordering_keys),
)
CHOSEN = 4


@given(messages, st.booleans())
def test_a_message_filled_in_place_is_the_one_built_of_all_its_fields(
    message: Named,
    no_time: bool,
) -> None:
    if no_time:
        message = message._replace(born_time_ms=None)
    filled = pb.PutRequest()
    write_to(filled.message, message)
    fields = {**message._asdict(), "properties": dict(message.properties or {})}
    built = pb.PutRequest(message=pb.Message(**fields))
    assert filled == built
    assert filled.SerializeToString(deterministic=True) == built.SerializeToString(
        deterministic=True
    )


def outgoing(
    topic: str = "t",
    queue_id: int | None = 0,
    tag: str = "",
    keys: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    flag: int = 0,
    born_time_ms: int = 0,
) -> Named:
    return Named(topic, b"body", queue_id, tag, keys, (), properties, flag, born_time_ms)


def sent(batch: Sequence[Outgoing]) -> pb.PutBatchRequest:
    request = pb.PutStreamRequest.FromString(put_stream_request(3, batch, "me", 9))
    assert request.request_id == 3
    assert request.batch.producer == pb.ProducerSequence(producer_id="me", sequence=9)
    return request.batch


@given(st.lists(messages, min_size=1, max_size=6))
def test_the_service_reads_what_was_sent(batch: list[Named]) -> None:
    read = request_in(sent(batch), ("127.0.0.1", 1), lambda *_: CHOSEN, Budget())
    assert [
        Named(
            one.topic,
            one.body,
            one.queue_id,
            one.tag,
            one.keys,
            one.light_queues,
            one.properties or None,
            one.flag,
            one.born_time_ms,
        )
        for one in read
    ] == [
        one._replace(
            queue_id=CHOSEN if one.queue_id is None else one.queue_id,
            properties=_stored_properties(one) or None,
            ordering_key="",
        )
        for one in batch
    ]


def _stored_properties(message: Named) -> dict[str, str]:
    key = {SHARDING_KEY: message.ordering_key} if message.ordering_key else {}
    return {**(message.properties or {}), **key}


@pytest.mark.parametrize(
    ("message", "by_columns"),
    [
        (outgoing(tag="new", keys=("k1", "k2")), True),
        (outgoing(properties={"a": "b"}), False),
        (outgoing(keys=("two words",)), False),  # a column would make two keys of it
        (outgoing(keys=("",)), False),  # a column would lose it
    ],
)
def test_columns_carry_what_they_can(message: Named, by_columns: bool) -> None:
    request = sent([outgoing(), message])
    assert request.HasField("columns") == by_columns
    assert bool(request.messages) != by_columns


@given(messages)
def test_what_passes_the_check_can_be_sent(message: Named) -> None:
    checked, size = Checker().check(message)
    assert size >= FRAME_BYTES + len(message.body)
    assert sent([checked]).ByteSize() > len(message.body)


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (outgoing(queue_id=-1), "queue_id: -1"),
        (outgoing(queue_id=1 << 31), "queue_id"),
        (outgoing(topic="\ud800"), "surrogates"),
        (outgoing(tag="\ud800"), "surrogates"),
        (outgoing(keys=("\ud800",)), "surrogates"),
        (outgoing(properties={"a": "\ud800"}), "surrogates"),
        (outgoing(flag=1 << 31), "flag"),
        (outgoing(born_time_ms=-1), "born_time_ms"),
        (outgoing()._replace(ordering_key="k"), "ordering_key: cannot be combined"),
        (outgoing(queue_id=None)._replace(ordering_key="k" * 256), "ordering_key: .*up to 255"),
        (outgoing(queue_id=None)._replace(ordering_key="a\x01"), "ordering_key: .*printable"),
        (
            outgoing(queue_id=None, properties={SHARDING_KEY: "a"})._replace(ordering_key="a"),
            "ordering_key: __SHARDINGKEY",
        ),
    ],
)
def test_what_no_request_can_carry_is_refused(message: Named, field: str) -> None:
    with pytest.raises(ValueError, match=field):
        Checker().check(message)


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (outgoing(keys="key"), "keys: expected a sequence"),
        (outgoing(keys=[1]), "keys: expected text"),  # type: ignore[list-item] # what a caller may do
        (outgoing(properties={"a": 1}), "properties"),  # type: ignore[dict-item] # the same
        (outgoing(topic=b"t"), "topic"),  # type: ignore[arg-type] # the same
        (outgoing(queue_id="1"), "queue_id"),  # type: ignore[arg-type] # the same
        (outgoing(flag=1.5), "flag"),  # type: ignore[arg-type] # the same
    ],
)
def test_other_types_are_refused(message: Named, field: str) -> None:
    with pytest.raises(TypeError, match=field):
        Checker().check(message)


def test_lists_of_the_caller_are_frozen() -> None:
    keys, properties = ["a"], {"a": "b"}
    checked, _ = Checker().check(outgoing(keys=keys, properties=properties))
    keys.append("b")
    properties.clear()
    assert checked[4:7] == (("a",), (), {"a": "b"})


def test_text_is_no_body() -> None:
    assert as_bytes(bytearray(b"ab")) == b"ab"
    with pytest.raises(TypeError, match="encode text"):
        as_bytes("text")


def test_cache_is_bounded() -> None:
    checker = Checker()
    for number in range(20_000):
        checker.check((f"topic-{number}", b"", 0, "", (), (), None, 0, None, ""))
    assert len(checker._known) <= 8192


def test_the_garbage_collector_lets_go_of_what_waits_to_be_sent() -> None:
    accumulator = Accumulator(ProducerConfig(), lambda: None, lambda: None)
    accumulator.add(("t", b"x", 0, "tag", (), (), None, 0, None, ""))
    batch, _, _ = accumulator.add_checked(accumulator.check([Message("t", b"y")]), 0)[0]
    gc.collect()
    assert [gc.is_tracked(each) for each in batch.messages] == [False, False]
