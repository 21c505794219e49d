"""The hand-written wire form against the generated code."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcq_client.wire import MessageEncoder, as_bytes, put_stream_request, varint
from proto.v1 import kvcq_pb2 as pb

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
names = st.text(min_size=1, max_size=200, alphabet=st.characters(exclude_categories=["Cs"]))
i32 = st.integers(-(1 << 31), (1 << 31) - 1)


def _read(encoded: bytes) -> pb.PutBatchRequest:
    return pb.PutBatchRequest.FromString(encoded)


@given(
    topic=texts,
    body=st.binary(max_size=400),
    queue_id=st.none() | st.integers(0, (1 << 31) - 1),
    tag=texts,
    keys=st.lists(texts, max_size=3),
    light=st.lists(names, max_size=3),
    properties=st.dictionaries(texts, texts, max_size=3),
    flag=i32,
    born=st.integers(0, 1 << 50),
)
def test_generated_code_reads_what_was_written(
    topic: str,
    body: bytes,
    queue_id: int | None,
    tag: str,
    keys: list[str],
    light: list[str],
    properties: dict[str, str],
    flag: int,
    born: int,
) -> None:
    encoder = MessageEncoder()
    head, tail = encoder.head_and_tail(
        topic, queue_id, tag, len(body), keys, light, properties, flag, born
    )
    plain = encoder.head(topic, queue_id, tag, len(body))
    expected = pb.Message(
        topic=topic,
        queue_id=queue_id,
        body=body,
        tag=tag,
        keys=keys,
        light_queues=light,
        properties=properties,
        flag=flag,
        born_time_ms=born,
    )
    read = _read(head + body + tail + plain + body)
    assert read.messages[0] == expected
    assert read.messages[1] == pb.Message(topic=topic, queue_id=queue_id, body=body, tag=tag)
    assert encoder.head(topic, queue_id, tag, len(body)) == plain  # from the cache


@given(st.integers(0, 1 << 62), st.integers(0, 1 << 62), texts)
def test_stream_request_is_read_back(request_id: int, sequence: int, producer_id: str) -> None:
    messages = pb.PutBatchRequest(messages=[pb.Message(topic="t", body=b"x" * 200)])
    data = put_stream_request(request_id, messages.SerializeToString(), producer_id, sequence)
    read = pb.PutStreamRequest.FromString(data)
    assert read.request_id == request_id
    assert read.batch.messages == messages.messages
    assert read.batch.producer == pb.ProducerSequence(producer_id=producer_id, sequence=sequence)


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 1 << 35, -1, -(1 << 31)])
def test_varint_is_that_of_protobuf(value: int) -> None:
    assert varint(value) == pb.Placed(queue_offset=value).SerializeToString()[1:] or value == 0


def test_queue_id_below_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="queue_id -1"):
        MessageEncoder().head("t", -1, "", 0)


def test_text_is_no_body() -> None:
    assert as_bytes(bytearray(b"ab")) == b"ab"
    with pytest.raises(TypeError, match="encode text"):
        as_bytes("text")


def test_one_text_is_no_list_of_keys() -> None:
    with pytest.raises(TypeError, match="sequences"):
        MessageEncoder().head_and_tail("t", 0, "", 0, "key", (), None, 0, 0)


def test_caches_are_bounded() -> None:
    encoder = MessageEncoder()
    for number in range(20_000):
        encoder.head(f"topic-{number}", 0, "", number)
    assert len(encoder.heads) <= 8192
