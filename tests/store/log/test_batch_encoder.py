"""The fast encoder writes the bytes of a slow one, and says what parsing would find in them."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import InvalidArgumentError
from store.format import BatchMark
from store.format.preparing import PlainBatch, prepare, prepare_all
from store.format.record import (
    Found,
    check_record,
    dispatch_request,
    unpack_record,
)
from store.log.batch_encoder import BatchEncoder, Encoded
from store.log.queue_offsets import Hot, TakenLight
from store.message import FEW, Message
from tests.support.log_writer import Entry, LogWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.format import Prepared

HOST = ("10.0.0.1", 10911)
NOW_MS = 1_700_000_000_456


def hot_queues(messages: Sequence[Message], *, start: int = 0) -> Hot:
    hot = Hot()
    for message in messages:
        hot.queues[message.topic, message.queue_id] = start
    # As the commit log asks for them: in that order.
    names: Sequence[str] = list(dict.fromkeys(chain(*(each.light_queues for each in messages))))
    prepared: Sequence[Prepared] = ()
    if len(messages) >= FEW:
        prepared = prepare_all(messages, 1 << 20, 4096)
    if isinstance(prepared, PlainBatch) and prepared.light is not None:
        names = prepared.light.different
    hot.light = TakenLight(names, [start] * len(names))
    return hot


def next_offsets(hot: Hot) -> set[int]:
    return {*hot.queues.values(), *hot.light.by_name.values()}


def encode(
    messages: Sequence[Message],
    queues: Hot,
    *,
    first: int = 0,
    offset: int = 0,
    room: int = 1 << 20,
    host: tuple[str, int] = HOST,
    crc_item: bool = True,
    prepared: Sequence[Prepared] | None = None,
) -> Encoded:
    if prepared is None:
        prepared = [prepare(message, n, 1 << 20, 4096) for n, message in enumerate(messages)]
    encoder = BatchEncoder(host, crc_item=crc_item)
    return encoder.encode(messages, prepared, first, queues, offset, room, NOW_MS)


def as_entry(message: Message, host: tuple[str, int]) -> Entry:
    properties = dict(message.properties or {})
    if message.keys:
        properties["KEYS"] = " ".join(message.keys)
    if message.tag:
        properties["TAGS"] = message.tag
    return Entry(
        topic=message.topic,
        body=message.body,
        queue_id=message.queue_id,
        properties=properties,
        light_queues=tuple(dict.fromkeys(message.light_queues)),
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_time_ms=message.born_time_ms or NOW_MS,
        store_time_ms=NOW_MS,
        born_host=message.born_host,
        store_host=host,
        reconsume_times=message.reconsume_times,
        prepared_offset=message.prepared_transaction_offset,
    )


words = st.text(st.sampled_from("ab订\U0001f600-"), min_size=1, max_size=5)
hosts = st.sampled_from([("127.0.0.1", 54321), ("2001:db8::1", 1), ("10.1.2.3", 0)])
light_names = st.sampled_from(["%LMQ%a", "%LMQ%b", "%LMQ%c"])


@st.composite
def messages(draw: st.DrawFn) -> Message:
    transaction = draw(st.sampled_from([0, 0, 0, 0x4, 0x8, 0xC]))
    light = () if transaction in (0x4, 0xC) else draw(st.lists(light_names, max_size=4).map(tuple))
    return Message(
        topic=draw(st.sampled_from(["T", "Other", "%RETRY%" + "g" * 130])) if not light else "T",
        body=draw(st.binary(max_size=40)),
        queue_id=draw(st.integers(0, 2)),
        tag=draw(st.just("") | words),
        keys=draw(st.lists(words, max_size=3).map(tuple)),
        light_queues=light,
        properties=draw(
            st.none()
            | st.dictionaries(words, words, max_size=2)
            | words.map(lambda key: {"UNIQ_KEY": key})
        ),
        flag=draw(st.integers(-5, 5)),
        sys_flag=transaction | draw(st.sampled_from([0, 0x1, 0x301])),
        born_time_ms=draw(st.sampled_from([0, 123])),
        born_host=draw(hosts),
        reconsume_times=draw(st.integers(0, 3)),
        prepared_transaction_offset=draw(st.sampled_from([0, 77])),
    )


@given(batch=st.lists(messages(), min_size=1, max_size=8), host=hosts, crc_item=st.booleans())
def test_same_bytes_as_a_slow_writer(
    batch: list[Message],
    host: tuple[str, int],
    crc_item: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    encoded = encode(batch, hot_queues(batch), host=host, crc_item=crc_item)
    writer = LogWriter(tmp_path_factory.mktemp("log"), 1 << 20, crc_item=crc_item)
    rows = writer.extend([as_entry(message, host) for message in batch])
    data = b"".join(encoded.parts)
    assert data == b"".join(row.record for row in rows)
    assert encoded.count == len(batch)
    assert encoded.end_offset == writer.end == len(data)
    # What the appender knows and what a replay finds are the same.
    at = 0
    for request in encoded.requests:
        assert check_record(data, at, len(data), at).found is Found.RECORD
        assert request == dispatch_request(data, at)
        at += request.record_size


@given(batch=st.lists(messages(), min_size=1, max_size=8), room=st.integers(0, 1500))
def test_what_does_not_fit_is_left(batch: list[Message], room: int) -> None:
    whole = encode(batch, hot_queues(batch), offset=4096)
    queues = hot_queues(batch)
    some = encode(batch, queues, offset=4096, room=room)
    fitting = [
        request
        for request in whole.requests
        if request.physical_offset + request.record_size + 8 <= 4096 + room
    ]
    assert some.requests == fitting
    assert some.count == len(fitting)
    data = b"".join(some.parts)
    assert some.end_offset == 4096 + len(data)
    assert b"".join(whole.parts).startswith(data)
    # The rest goes on in the next segment, queue offsets without a hole.
    rest = encode(batch, queues, first=some.count, offset=8192)
    assert [(r.queue_offset, r.light_queues) for r in (*some.requests, *rest.requests)] == [
        (r.queue_offset, r.light_queues) for r in whole.requests
    ]


@given(st.lists(messages(), min_size=1, max_size=8))
def test_offsets_are_given_back(batch: list[Message]) -> None:
    queues = hot_queues(batch, start=5)
    encoded = encode(batch, queues)
    encoded.give_back_offsets()
    assert next_offsets(queues) == {5}
    encoded.give_back_offsets()
    assert next_offsets(queues) == {5}


@st.composite
def plain_batches(draw: st.DrawFn) -> list[Message]:
    """Messages without properties, or in light queues; now and then one that is not so plain."""
    places = draw(st.lists(st.tuples(words, st.integers(0, 2)), min_size=1, max_size=3))
    host = draw(hosts)
    bodies = draw(st.lists(st.binary(max_size=40), min_size=1, max_size=2 * FEW))
    lists: st.SearchStrategy[tuple[str, ...]] = st.just(())
    if draw(st.booleans()):
        names = light_names | st.integers(0, 999).map(lambda number: f"%LMQ%{number}")
        lists = st.lists(names, unique=True, max_size=12).map(tuple)
    batch = []
    for body in bodies:
        topic, queue_id = draw(st.sampled_from(places))
        born_time_ms = draw(st.sampled_from([0, 123]))
        light = draw(lists)
        batch.append(Message(topic, body, queue_id, "", (), light, None, 0, 0, born_time_ms, host))
    at = draw(st.integers(0, len(batch) - 1))
    less_plain: list[dict[str, Any]] = [
        *[{}] * 5,
        {"tag": "t"},
        {"flag": 1},
        {"sys_flag": 0x4, "light_queues": ()},
        {"reconsume_times": 1},
        {"prepared_transaction_offset": 7},
        {"born_host": ("10.0.0.9", 2)},
        {"light_queues": ("%LMQ%a", "%LMQ%a")},
        {"light_queues": ("%LMQ%" + "x" * 250,)},
    ]
    batch[at] = batch[at]._replace(**draw(st.sampled_from(less_plain)))
    return batch


@given(
    batch=plain_batches(),
    mark=st.sampled_from([None, BatchMark("p", 7, 20, 0xABCD, 27)]),
    begin=st.sampled_from([None, 4096, 1000]),
    first=st.integers(0, 2),
    room=st.sampled_from([0, 200, 2000, 1 << 20]),
    host=hosts,
    crc_item=st.booleans(),
)
def test_columns_give_what_one_after_the_other_gives(
    batch: list[Message],
    mark: BatchMark | None,
    begin: int | None,
    first: int,
    room: int,
    host: tuple[str, int],
    crc_item: bool,
) -> None:
    encoder = BatchEncoder(host, crc_item=crc_item)
    hot, slow_hot = (hot_queues(batch, start=5) for _ in range(2))
    prepared = prepare_all(batch, 1 << 20, 4096)
    one_by_one = list(prepared)
    if any(each.prepared_transaction_offset or each.sys_flag for each in batch):
        begin = None  # they are no batch
    rest = (4096, room, NOW_MS, begin, None, mark)
    found = encoder.encode(batch, prepared, first, hot, *rest)
    slow = encoder.encode(batch, one_by_one, first, slow_hot, *rest)
    assert b"".join(found.parts) == b"".join(slow.parts)
    assert list(found.requests) == list(slow.requests)
    assert (found.count, found.end_offset) == (slow.count, slow.end_offset)
    assert hot.queues == slow_hot.queues
    assert hot.light.by_name == slow_hot.light.by_name
    found.give_back_offsets()
    assert next_offsets(hot) == {5}


@pytest.mark.parametrize("light", [(), ("%LMQ%a", "%LMQ%bc")])
@pytest.mark.parametrize("mark", [None, BatchMark("p", 0, FEW, 0, FEW)])
def test_many_plain_messages_go_by_columns(mark: BatchMark | None, light: tuple[str, ...]) -> None:
    batch = [Message("T", b"x"), *[Message("T", b"x", light_queues=light)] * FEW]
    prepared = prepare_all(batch, 9, 9)
    encoder = BatchEncoder(HOST, crc_item=True)
    with patch.object(encoder, "_encode", wraps=encoder._encode) as one_by_one:
        encoder.encode(batch, prepared, 0, hot_queues(batch), 0, 1 << 20, NOW_MS, 0, None, mark)
    one_by_one.assert_not_called()


def test_queue_offsets_are_dense() -> None:
    batch = [Message("T", b"x", light_queues=("%LMQ%a",)) for _ in range(3)]
    queues = hot_queues(batch, start=7)
    found = encode(batch, queues).requests
    assert [request.queue_offset for request in found] == [7, 8, 9]
    assert [request.light_queues for request in found] == [(("%LMQ%a", n),) for n in (7, 8, 9)]
    assert next_offsets(queues) == {10}


def test_open_and_rolled_back_transactions_take_no_offset() -> None:
    batch = [Message("T", b"x", sys_flag=flag, keys=("k",)) for flag in (0x4, 0xC, 0x8, 0)]
    queues = hot_queues(batch, start=3)
    found = encode(batch, queues).requests
    assert [request.in_queue for request in found] == [False, False, True, True]
    assert [request.queue_offset for request in found] == [0, 0, 3, 4]
    assert [request.keys for request in found] == [("k",), (), ("k",), ("k",)]
    assert queues.queues["T", 0] == 5


@pytest.mark.parametrize("count", [1, FEW])
def test_light_queue_offsets_that_do_not_fit_the_properties_are_refused(count: int) -> None:
    names = tuple(f"%LMQ%{'x' * 240}{n:03}" for n in range(125))
    batch = [Message("T", b"x"), *[Message("T", b"x", light_queues=names)] * count]
    queues = hot_queues(batch, start=10**15)  # more digits than are kept for
    with pytest.raises(InvalidArgumentError) as caught:
        encode(batch, queues, prepared=prepare_all(batch, 1 << 20, 4096))
    assert caught.value.field == "messages[1].light_queues"
    assert next_offsets(queues) == {10**15}  # of the first one too


def test_a_bad_born_host_takes_no_offset() -> None:
    batch = [Message("T", b"x"), Message("T", b"x", born_host=("nowhere", 1))]
    queues = hot_queues(batch)
    with pytest.raises(InvalidArgumentError):
        encode(batch, queues)
    assert queues.queues["T", 0] == 0


def test_many_producers_fill_no_memory() -> None:
    encoder = BatchEncoder(HOST, crc_item=True)
    batch = [Message("T", b"x", born_host=("10.0.0.1", port)) for port in range(10_000)]
    queues = hot_queues(batch)
    prepared = [prepare(message, 0, 9, 9) for message in batch]
    data = b"".join(encoder.encode(batch, prepared, 0, queues, 0, 1 << 22, NOW_MS).parts)
    size = len(data) // len(batch)
    for port in (0, 4095, 4096, 9999):
        assert unpack_record(data[port * size :]).born_host == ("10.0.0.1", port)
    assert len(encoder._hosts) <= 4096
