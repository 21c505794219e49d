"""kvcq_client/transport/joined_puts.py: puts that leave as one batch are what they are alone."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcq_client import LIGHT_PREFIX, AsyncClient, Message
from kvcq_client.errors import (
    InvalidArgumentError,
    KvcqError,
    NotFoundError,
    NotPossibleError,
    UnavailableError,
)
from kvcq_client.format import placed, write_to
from kvcq_client.format.records import message_id
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.transport.joined_puts import join, split
from store.config import FlushMode
from tests.support.serving import serving

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from kvcq_client.format import Outgoing
    from kvcq_client.values import Placed
    from tests.support.cut_line import CutLine
    from tests.support.serving import Served

NAMES = st.text(max_size=8)
OUTGOING = st.tuples(
    NAMES,
    st.binary(max_size=40),
    st.none() | st.integers(0, 9),
    NAMES,
    st.lists(NAMES, max_size=3).map(tuple),
    st.lists(NAMES, max_size=3).map(tuple),
    st.dictionaries(NAMES, NAMES, max_size=3),
    st.integers(0, 9),
    st.none() | st.integers(0, 2**62),
    NAMES,
)


@given(st.lists(OUTGOING, min_size=1, max_size=5))
def test_joined_requests_are_a_batch_of_their_messages(outgoing: Sequence[Outgoing]) -> None:
    requests = []
    batch = pb.PutBatchRequest()
    for one in outgoing:
        request = pb.PutRequest()
        write_to(request.message, one)
        write_to(batch.messages.add(), one)
        requests.append(request.SerializeToString())
    assert pb.PutBatchRequest.FromString(join(requests)) == batch


OFFSETS = st.integers(0, 2**62)
PLACES = st.lists(
    st.tuples(st.integers(0, 2**31 - 1), OFFSETS, OFFSETS, st.lists(OFFSETS, max_size=4)),
    min_size=1,
    max_size=6,
)


@given(PLACES, OFFSETS, st.binary(min_size=8, max_size=8))
def test_each_is_told_its_own_place(
    places: list[tuple[int, int, int, list[int]]], store_time_ms: int, store_host: bytes
) -> None:
    response = pb.PutBatchResponse(store_time_ms=store_time_ms, store_host=store_host)
    for queue_id, queue_offset, physical_offset, light in places:
        response.queue_ids.append(queue_id)
        response.queue_offsets.append(queue_offset)
        response.physical_offsets.append(physical_offset)
        response.light_queue_offsets.extend(light)
    light_queues = [len(light) for *_, light in places]
    assert split(response.SerializeToString(), light_queues) == [
        placed(
            pb.PutResponse(
                placed=pb.Placed(
                    queue_id=queue_id,
                    queue_offset=queue_offset,
                    physical_offset=physical_offset,
                    message_id=message_id(store_host, physical_offset),
                    light_queue_offsets=light,
                ),
                store_time_ms=store_time_ms,
            )
        )
        for queue_id, queue_offset, physical_offset, light in places
    ]


@pytest.mark.parametrize(
    "response",
    [
        pb.PutBatchResponse(
            queue_ids=[0], queue_offsets=[1], physical_offsets=[2]
        ).SerializeToString(),
        b"no protobuf",
    ],
)
def test_an_answer_that_is_none_is_an_error(response: bytes) -> None:
    with pytest.raises(UnavailableError, match="cannot decode"):
        split(response, [0, 0])


async def put_all(client: AsyncClient, messages: Sequence[Message]) -> list[Placed | BaseException]:
    return await asyncio.gather(
        *(client.put(message) for message in messages), return_exceptions=True
    )


async def is_told_right(client: AsyncClient, message: Message, placed: Placed) -> None:
    """The message is stored where the put said, and so are its places in light queues."""
    (stored,) = (
        await client.pull(message.topic, placed.queue_id, placed.queue_offset, max_messages=1)
    ).messages
    assert stored.body == message.body
    assert stored.message_id == placed.message_id
    assert stored.physical_offset == placed.physical_offset
    assert stored.store_time_ms == placed.store_time_ms
    names = dict.fromkeys(message.light_queues)
    assert len(placed.light_queue_offsets) == len(names)
    for name, offset in zip(names, placed.light_queue_offsets, strict=True):
        (stored,) = (await client.pull(name, 0, offset, max_messages=1)).messages
        assert stored.body == message.body


async def test_many_callers_put_all_kinds_of_messages(served: Served, client: AsyncClient) -> None:
    light = [f"{LIGHT_PREFIX}{number}" for number in range(4)]
    messages = [
        Message(
            f"T{number % 3}",
            struct.pack("<I", number),
            number % 2,
            "tag" if number % 5 == 0 else "",
            ("key",) if number % 4 == 0 else (),
            (*light[: number % 5], *light[:1]) if number % 3 == 0 and number % 5 else (),
            {"name": "value"} if number % 7 == 0 else None,
        )
        for number in range(200)
    ]
    placed = await put_all(client, messages)
    for message, place in zip(messages, placed, strict=True):
        assert not isinstance(place, BaseException)
        await is_told_right(client, message, place)
    statistics = await client.statistics()
    assert statistics["server.messages_put"] == 200
    assert statistics["server.calls.PutBatch"] < 20


async def test_one_that_is_refused_takes_no_other_with_it(
    served: Served, client: AsyncClient
) -> None:
    await client.put(Message("T", b"first", 0))
    messages = [Message("T", b"%d" % number, 0) for number in range(40)]
    messages[7] = Message("T", b"of no such queue", 999)
    messages[21] = Message("a topic", b"of no such name", 0)
    placed = await put_all(client, messages)
    assert [at for at, one in enumerate(placed) if isinstance(one, KvcqError)] == [7, 21]
    assert isinstance(placed[7], NotFoundError)
    assert isinstance(placed[21], InvalidArgumentError)
    assert placed[21].field == "message.topic"  # as of a put by itself
    bodies = [one.body for one in (await client.pull("T", 0, 1)).messages]
    assert sorted(bodies) == sorted(
        one.body for at, one in enumerate(messages) if at not in (7, 21)
    )


@pytest.mark.parametrize("flush_mode", FlushMode)
@pytest.mark.parametrize("seed", range(3))
async def test_puts_that_leave_together_end_as_each_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush_mode: FlushMode, seed: int
) -> None:
    pick = random.Random(seed)
    kinds: list[Callable[[bytes], Message]] = [
        *[lambda body: Message("T", body, 0)] * 6,
        lambda body: Message("T", body, 99),
        lambda body: Message("no topic", body, 0),
        lambda body: Message("T", body, 0, "a||b"),
        lambda body: Message("T", body, 1, light_queues=(f"{LIGHT_PREFIX}a",) * pick.randrange(3)),
    ]
    groups = [
        [kind(b"%d" % at) for at, kind in enumerate(pick.choices(kinds, k=count))]
        for count in (1, 5, 20, 60)
    ]

    async def outcomes(root: Path, *, together: bool) -> list[object]:
        async with (
            serving(root, store={"flush_mode": flush_mode}) as served,
            AsyncClient(served.target, timeout_s=10) as client,
        ):
            await client.put(Message("T", b"first", 0))
            told: list[object] = []
            for group in groups:
                placed: list[Placed | BaseException] = []
                if together:
                    placed = await put_all(client, group)
                else:
                    for message in group:
                        placed += await put_all(client, [message])
                told.append([_without_place(one) for one in placed])
            # Callers beside each other have no order, so the numbers may be dealt out otherwise.
            for name, queue_id in (("T", 0), ("T", 1), (f"{LIGHT_PREFIX}a", 0)):
                stored = (await client.pull(name, queue_id, 0)).messages
                told.append(sorted(one.body for one in stored))
            return told

    together = await outcomes(tmp_path / "together", together=True)
    assert await outcomes(tmp_path / "alone", together=False) == together


def _without_place(told: Placed | BaseException) -> object:
    if isinstance(told, BaseException):
        return type(told), str(told)
    return told.queue_id, len(told.light_queue_offsets)


async def test_puts_that_are_more_than_a_segment_holds(tmp_path: Path) -> None:
    async with (
        serving(tmp_path / "store", store={"segment_bytes": 128 << 10}) as served,
        AsyncClient(served.target, timeout_s=10) as client,
    ):
        placed = await put_all(client, [Message("T", bytes(60 << 10), 0) for _ in range(20)])
        offsets = [one.queue_offset for one in placed if not isinstance(one, BaseException)]
        assert sorted(offsets) == [*range(20)]


async def test_after_a_flush_that_failed_no_put_is_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        serving(tmp_path / "store", store={"flush_mode": FlushMode.SYNC}, damaged=True) as served,
        AsyncClient(served.target, timeout_s=10) as client,
    ):
        await client.put(Message("T", b"first", 0))
        monkeypatch.setattr(os, "fdatasync", _bad_disk)
        told = await put_all(client, [Message("T", b"%d" % number, 0) for number in range(3)])
        monkeypatch.undo()
        assert [(type(one), getattr(one, "reason", "")) for one in told] == [
            (NotPossibleError, "FLUSH_FAILED")
        ] * 3
        assert len({id(one) for one in told}) == 3
        statistics = await client.statistics()
        assert statistics["server.refusals.PutBatch.FLUSH_FAILED"] == 1
        assert statistics["server.calls.Put"] == 1  # the first


def _bad_disk(_: int) -> None:
    raise OSError(errno.EIO, "a bad disk")


async def test_puts_under_way_when_the_line_breaks_are_not_repeated(
    served: Served, line: CutLine
) -> None:
    async with AsyncClient(line.target, timeout_s=20) as client:
        await client.put(Message("T", b"open", 0))
        line.cut_after_answer_bytes = 0
        placed = await put_all(client, [Message("T", b"%d" % number, 0) for number in range(40)])
        line.cut_after_answer_bytes = None
        await client.put(Message("T", b"behind", 0))
        bodies = [one.body for one in (await client.pull("T", 0, 0)).messages]
        assert len(bodies) == len(set(bodies))
        for number, place in enumerate(placed):
            if isinstance(place, BaseException):
                assert isinstance(place, KvcqError)
            else:
                assert b"%d" % number in bodies


async def test_who_gives_up_leaves_the_others_their_answers(client: AsyncClient) -> None:
    await client.put(Message("T", b"open", 0))
    puts = [
        asyncio.create_task(client.put(Message("T", b"%d" % number, 0))) for number in range(20)
    ]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    puts[3].cancel()
    placed = await asyncio.gather(*puts, return_exceptions=True)
    assert [at for at, one in enumerate(placed) if isinstance(one, BaseException)] == [3]
