"""server/services/shared_group.py over real gRPC: where a group is, resets, dead letters."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kvcq_client import Message, PermissionDeniedError
from kvcq_client.pb.v1 import kvcq_pb2
from kvcq_client.pb.v1 import shared_groups_pb2 as pb
from tests.server.services.test_shared_group import acknowledge, orders, receive, refusal
from tests.support.until import until
from tests.support.users import guarded

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.serving import Served

__all__ = ["orders"]  # a fixture

LATE = pb.HANDLE_OUTCOME_NOT_IN_FLIGHT


async def describe(served: Served, **fields: int | str) -> pb.DescribeGroupResponse:
    request = pb.DescribeGroupRequest(group="g", **fields)  # type: ignore[arg-type] # its fields
    answer: pb.DescribeGroupResponse = await served.shared.DescribeGroup(request)
    return answer


async def dead(served: Served, count: int) -> None:
    """So many dead letters of the group, from `orders`."""
    settings = pb.SharedGroupSettings(max_deliveries=1)
    await served.shared.CreateGroup(pb.CreateGroupRequest(group="g", settings=settings))
    messages = [kvcq_pb2.Message(topic="orders", queue_id=0, body=b"%d" % n) for n in range(count)]
    await served.messages.PutBatch(kvcq_pb2.PutBatchRequest(messages=messages))
    found = await receive(served)
    await served.shared.GiveBack(pb.GiveBackRequest(group="g", handles=found.handles))
    assert not (await receive(served)).messages


async def letters(served: Served, **fields: int | str) -> pb.ListDeadLettersResponse:
    request = pb.ListDeadLettersRequest(group="g", **fields)  # type: ignore[arg-type] # its fields
    answer: pb.ListDeadLettersResponse = await served.shared.ListDeadLetters(request)
    return answer


async def test_a_description_says_what_is_done_with_whom_and_waiting(orders: Served) -> None:
    found = await receive(orders)
    places = list(zip(found.queue_ids, found.queue_offsets, strict=True))
    first, second = (found.handles[places.index((0, offset))] for offset in (0, 1))
    await acknowledge(orders, [first])
    given = pb.GiveBackRequest(group="g", handles=[second], delay_ms=60_000)
    await orders.shared.GiveBack(given)
    described = await describe(orders)
    queue = described.queues[0]
    assert (queue.topic, queue.queue_id) == ("orders", 0)
    assert (queue.next_offset, queue.max_offset, queue.done_below) == (3, 3, 1)
    assert (queue.in_flight, queue.waiting_again) == (1, 1)
    assert queue.oldest_time_ms > 0
    assert described.queues[1].in_flight == 1
    assert not described.dead_letters


async def test_a_description_comes_in_pages(served: Served) -> None:
    await served.topics.CreateTopics(
        kvcq_pb2.CreateTopicsRequest(
            topics=[kvcq_pb2.CreateTopicRequest(name="orders", queue_count=8)]
        )
    )
    messages = [kvcq_pb2.Message(topic="orders", queue_id=n, body=b"x") for n in range(8)]
    await served.messages.PutBatch(kvcq_pb2.PutBatchRequest(messages=messages))
    await receive(served)
    found: list[int] = []
    token = ""
    while True:
        page = await describe(served, page_size=3, page_token=token)
        found += [queue.queue_id for queue in page.queues]
        token = page.next_page_token
        if not token:
            break
    assert found == [*range(8)]


async def test_a_description_names_no_topic_that_its_reader_may_not_look_at(tmp_path: Path) -> None:
    from kvcq_client import Credentials
    from kvcq_client.transport.secured import Signer
    from tests.support.users import ADMIN, secret_of

    rights = {"mine": ["subscribe group g", "subscribe topic mine"]}
    async with guarded(tmp_path / "store", rights) as served:
        admin = Signer(ADMIN)
        for topic in ("mine", "others"):
            message = kvcq_pb2.Message(topic=topic, queue_id=0, body=b"x")
            put = kvcq_pb2.PutRequest(message=message)
            await served.messages.Put(put, metadata=admin.headers())
            request = pb.ReceiveRequest(group="g", topic=topic)
            await served.shared.Receive(request, metadata=admin.headers())
        signer = Signer(Credentials("mine", secret_of("mine")))
        described = await served.shared.DescribeGroup(
            pb.DescribeGroupRequest(group="g"), metadata=signer.headers()
        )
        assert {queue.topic for queue in described.queues} == {"mine"}


async def test_a_reset_ends_what_is_in_flight(orders: Served) -> None:
    found = await receive(orders)
    request = pb.ResetGroupRequest(group="g", topic="orders", queue_ids=[0], offset=1)
    done = await orders.shared.ResetGroup(request)
    assert done.ended_in_flight == 3
    assert [(queue.queue_id, queue.next_offset) for queue in done.queues] == [(0, 1)]
    outcomes = await acknowledge(orders, [*found.handles])
    assert outcomes.count(LATE) == 3, "that of the other queue is good"
    assert [message.body for message in (await receive(orders)).messages] == [b"b", b"c"]


@pytest.mark.parametrize(
    ("to", "count"), [({"earliest": True}, 4), ({"latest": True}, 0), ({"time_ms": 1}, 4)]
)
async def test_a_reset_of_all_queues_goes_where_it_says(
    orders: Served, to: dict[str, int], count: int
) -> None:
    await receive(orders, max_messages=1)
    request = pb.ResetGroupRequest(group="g", topic="orders", **to)  # type: ignore[arg-type] # its oneof
    assert len((await orders.shared.ResetGroup(request)).queues) == 4
    assert len((await receive(orders)).messages) == count


@pytest.mark.parametrize(
    ("fields", "reason", "field"),
    [
        ({}, "INVALID_ARGUMENT", "to"),
        ({"offset": 9}, "OFFSET_OUT_OF_RANGE", ""),
        ({"earliest": True, "queue_ids": [4]}, "UNKNOWN_QUEUE", ""),
        ({"earliest": True, "topic": "none"}, "UNKNOWN_TOPIC", ""),
        ({"earliest": True, "group": "none"}, "UNKNOWN_GROUP", ""),
    ],
)
async def test_a_reset_that_cannot_be_moves_nothing(
    orders: Served, fields: dict[str, object], reason: str, field: str
) -> None:
    found = await receive(orders)
    request = pb.ResetGroupRequest(**{"group": "g", "topic": "orders", **fields})  # type: ignore[arg-type] # its fields
    info = await refusal(orders.shared.ResetGroup(request))
    assert (info.reason, info.metadata["field"]) == (reason, field)
    assert LATE not in await acknowledge(orders, [*found.handles])


async def test_dead_letters_are_listed_and_put_again_once(served: Served) -> None:
    await dead(served, 3)
    assert (await describe(served)).dead_letters == 3
    first = await letters(served, page_size=2)
    rest = await letters(served, page_size=2, page_token=first.next_page_token)
    found = [*first.letters, *rest.letters]
    assert not rest.next_page_token
    assert [(one.topic, one.queue_id, one.queue_offset) for one in found] == [
        ("orders", 0, 0),
        ("orders", 0, 1),
        ("orders", 0, 2),
    ]
    assert {one.deliveries for one in found} == {1}
    redrive = pb.RedriveRequest(group="g", offsets=[found[1].offset])
    assert (await served.shared.Redrive(redrive)).redriven == 1
    assert (await served.shared.Redrive(redrive)).redriven == 0
    assert [message.body for message in (await receive(served)).messages] == [b"1"]
    done = await served.shared.Redrive(pb.RedriveRequest(group="g"))
    assert (done.redriven, done.left, done.complete) == (2, 0, True)
    assert not (await describe(served)).dead_letters


async def test_dead_letters_are_put_again_some_at_a_time(served: Served) -> None:
    await dead(served, 3)
    first = await served.shared.Redrive(pb.RedriveRequest(group="g", max_messages=2))
    assert (first.redriven, first.complete) == (2, False)
    rest = await served.shared.Redrive(pb.RedriveRequest(group="g", after=first.last))
    assert (rest.redriven, rest.complete) == (1, True)


async def test_a_dead_letter_that_is_deleted_is_gone(served: Served) -> None:
    await dead(served, 2)
    first, second = (await letters(served)).letters
    delete = pb.DeleteDeadLettersRequest(group="g", offsets=[first.offset])
    assert (await served.shared.DeleteDeadLetters(delete)).deleted == 1
    assert (await served.shared.DeleteDeadLetters(delete)).deleted == 0
    assert [one.offset for one in (await letters(served)).letters] == [second.offset]


@pytest.mark.parametrize("token", ["x", "-1", "9" * 20])
async def test_a_token_that_is_none_is_refused(served: Served, token: str) -> None:
    await dead(served, 1)
    assert (await refusal(letters(served, page_token=token))).metadata["field"] == "page_token"
    assert (await refusal(describe(served, page_token=token))).metadata["field"] == "page_token"


async def test_a_letter_goes_to_no_topic_that_its_redriver_may_not_publish_to(
    tmp_path: Path,
) -> None:
    """Those before it are put again; then the call is refused, and names the topic."""
    from tests.support.users import ADMIN, client_of, secret_of

    rights = {"keeper": ["admin group g", "publish topic mine"]}
    async with (
        guarded(tmp_path / "store", rights) as served,
        client_of(served, ADMIN.access_key, ADMIN.secret) as admin,
        client_of(served, "keeper", secret_of("keeper")) as keeper,
    ):
        await admin.create_group("g", max_deliveries=1)
        for topic in ("mine", "others"):
            await admin.put(Message(topic, b"x"))
            found = await admin.receive(topic, group="g")
            await admin.give_back("g", found, 0.0)
            assert not await admin.receive(topic, group="g")
        with pytest.raises(PermissionDeniedError, match="others"):
            await keeper.redrive("g")
        left = await admin.dead_letters("g")
        assert [letter.topic for letter in left] == ["others"]
        with pytest.raises(PermissionDeniedError, match="others"):
            await keeper.redrive("g", [left[0].offset])
        assert (await admin.redrive("g")).redriven == 1


async def test_a_description_says_who_receives_and_what_they_have(orders: Served) -> None:
    found = await receive(orders)
    [member] = (await describe(orders)).members
    assert (member.user, member.waiting, member.in_flight) == ("", 0, len(found.messages))
    assert member.address.startswith("127.0.0.1:")
    assert 0 < member.since_ms <= member.last_ms
    await acknowledge(orders, [*found.handles])
    waiting = asyncio.create_task(receive(orders, wait_ms=30_000))
    lines = orders.serving.reads._receives.lines
    await until(lambda: lines.waiting == 1)
    [again] = (await describe(orders)).members
    assert (again.address, again.waiting, again.in_flight) == (member.address, 1, 0)
    assert again.since_ms == member.since_ms
    waiting.cancel()
    await until(lambda: lines.waiting == 0)
    assert not (await describe(orders)).members, "it waits no more, and has nothing"
