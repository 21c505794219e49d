"""server/services/shared_group.py over real gRPC: receive, acknowledge, hold on, give back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import pytest_asyncio

from kvcq_client.pb.v1 import kvcq_pb2
from kvcq_client.pb.v1 import shared_groups_pb2 as pb
from server.puts.durability import Durability
from store.errors import FlushTimeoutError
from store.format import unpack_record
from store.groups import SharedGroups
from tests.server.services.test_call_stream import streaming
from tests.support.rpc_errors import error_info
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable

    from tests.support.serving import Served

DONE = pb.HANDLE_OUTCOME_DONE
LATE = pb.HANDLE_OUTCOME_NOT_IN_FLIGHT
ENDED = pb.HANDLE_OUTCOME_QUEUE_ENDED


@pytest_asyncio.fixture
async def orders(served: Served) -> AsyncIterator[Served]:
    """A topic `orders` with 3 messages in queue 0 and one in queue 1."""
    messages = [
        kvcq_pb2.Message(topic="orders", queue_id=queue_id, body=body, tag=tag)
        for queue_id, body, tag in ((0, b"a", "x"), (0, b"b", "y"), (0, b"c", "x"), (1, b"d", "x"))
    ]
    await served.messages.PutBatch(kvcq_pb2.PutBatchRequest(messages=messages))
    yield served


async def receive(served: Served, **asked: Any) -> pb.ReceiveResponse:  # noqa: ANN401 - its fields
    request = pb.ReceiveRequest(**{"group": "g", "topic": "orders", **asked})
    answer: pb.ReceiveResponse = await served.shared.Receive(request)
    return answer


async def acknowledge(
    served: Served, handles: list[str], group: str = "g"
) -> list[pb.HandleOutcome]:
    request = pb.AcknowledgeRequest(group=group, handles=handles)
    return [*(await served.shared.Acknowledge(request)).outcomes]


async def refusal(call: Awaitable[object]) -> Any:  # noqa: ANN401 - an ErrorInfo
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return error_info(refused.value)


async def test_each_message_goes_to_one_member_until_it_is_acknowledged(orders: Served) -> None:
    first = await receive(orders, max_messages=2)
    second = await receive(orders)
    bodies = [message.body for message in (*first.messages, *second.messages)]
    assert sorted(bodies) == [b"a", b"b", b"c", b"d"]
    assert not (await receive(orders)).messages
    handles = [*first.handles, *second.handles]
    assert await acknowledge(orders, handles) == [DONE] * 4
    assert await acknowledge(orders, handles) == [LATE] * 4


async def test_a_receive_acknowledges_what_came_before_it(orders: Served) -> None:
    first = await receive(orders, max_messages=2)
    second = await receive(orders, acknowledge=first.handles)
    assert [*second.outcomes] == [DONE] * 2
    bodies = [message.body for message in (*first.messages, *second.messages)]
    assert sorted(bodies) == [b"a", b"b", b"c", b"d"]
    third = await receive(orders, acknowledge=[*second.handles, first.handles[0]], wait_ms=60_000)
    assert ([*third.outcomes], [*third.handles]) == ([DONE, DONE, LATE], [])


async def test_a_receive_that_acknowledges_answers_when_that_is_durable(
    orders: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await receive(orders, max_messages=2)
    store = orders.store
    waited: list[int] = []

    async def fails(_: object, end_offset: int) -> None:
        waited.append(end_offset)
        raise FlushTimeoutError(end_offset, 1.0)

    monkeypatch.setattr("server.puts.durability.Durability.wait", fails)
    monkeypatch.setattr("server.puts.durability.Durability.is_at_append", property(lambda _: False))
    info = await refusal(receive(orders, acknowledge=first.handles))
    assert info.reason == "FLUSH_DISK_TIMEOUT"
    assert 0 < waited[0] <= store.log.appended_offset
    monkeypatch.undo()
    # Nobody has what it was handed over: it is given back, and that delivery does not count.
    again = await receive(orders, wait_ms=5_000)
    assert set(again.deliveries) == {1}
    assert await acknowledge(orders, [*first.handles]) == [LATE] * 2


async def test_an_attempt_that_is_made_again_after_a_slow_flush_has_its_messages(
    orders: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are not given back meanwhile, so nobody else can have them."""
    first = await receive(orders, max_messages=1)
    given_back: list[object] = []
    monkeypatch.setattr(SharedGroups, "give_back", lambda *given, **_: given_back.append(given))

    async def fails(_: object, end_offset: int) -> None:
        raise FlushTimeoutError(end_offset, 1.0)

    wait = Durability.wait
    monkeypatch.setattr(Durability, "wait", fails)
    again = {"acknowledge": first.handles, "attempt_id": "a", "max_messages": 1}
    assert (await refusal(receive(orders, **again))).reason == "FLUSH_DISK_TIMEOUT"
    monkeypatch.setattr(Durability, "wait", wait)
    second = await receive(orders, **again)
    await until(lambda: not orders.serving.reads._receives._giving_back)
    assert not given_back
    assert set(second.deliveries) == {1}
    others = await receive(orders)
    assert len(others.messages) == 2
    assert await acknowledge(orders, [*second.handles]) == [DONE]


async def test_bad_handles_of_a_receive_are_refused_with_their_field(orders: Served) -> None:
    found = await receive(orders, max_messages=1)
    many = [found.handles[0]] * 257
    assert (await refusal(receive(orders, acknowledge=many))).metadata["field"] == "acknowledge"
    info = await refusal(receive(orders, acknowledge=[found.handles[0], "forged"]))
    assert info.metadata["field"] == "acknowledge[1]"
    info = await refusal(receive(orders, acknowledge=[*found.handles], client_id="c"))
    assert info.metadata["field"] == "acknowledge"
    assert await acknowledge(orders, [*found.handles]) == [DONE]


async def test_columns_say_which_delivery_each_message_is(orders: Served) -> None:
    before_ms = orders.store.lease_time_ms()
    found = await receive(orders, invisible_ms=40_000, max_messages=3)
    places = list(zip(found.queue_ids, found.queue_offsets, strict=True))
    assert places == [(one.queue_id, one.queue_offset) for one in found.messages]
    assert [*found.deliveries] == [1, 1, 1]
    assert all(before_ms + 40_000 <= each <= before_ms + 60_000 for each in found.until_ms)
    await orders.shared.GiveBack(pb.GiveBackRequest(group="g", handles=found.handles))
    again = await receive(orders, max_messages=3)
    assert 2 in again.deliveries


async def test_whole_records_are_those_of_the_log(orders: Served) -> None:
    found = await receive(orders, form=kvcq_pb2.RECORD_FORM_WHOLE)
    assert not found.messages
    records, at = [], 0
    while at < len(found.records):
        size = int.from_bytes(found.records[at : at + 4], "big")
        records.append(unpack_record(found.records[at : at + size]))
        at += size
    assert sorted(record.body for record in records) == [b"a", b"b", b"c", b"d"]
    assert len(found.handles) == 4


async def test_what_the_filter_does_not_want_is_done_for_the_group(orders: Served) -> None:
    found = await receive(orders, tag_filter="y")
    assert [message.body for message in found.messages] == [b"b"]
    assert not (await receive(orders)).messages


async def test_a_condition_filters_and_the_rest_is_done(orders: Served) -> None:
    messages = [
        kvcq_pb2.Message(topic="orders", queue_id=0, body=b"%d" % n, properties={"n": str(n)})
        for n in range(600)
    ]
    await orders.messages.PutBatch(kvcq_pb2.PutBatchRequest(messages=messages))
    found: list[str] = []
    for _ in range(10):
        got = await receive(orders, sql_filter="n > 597")
        found += got.handles
    assert len(found) == 2


async def test_a_handle_stays_good_when_it_is_held_on_to(orders: Served) -> None:
    found = await receive(orders, max_messages=1, invisible_ms=1000)
    held = await orders.shared.ChangeInvisibleTime(
        pb.ChangeInvisibleTimeRequest(group="g", handles=found.handles, invisible_ms=90_000)
    )
    assert [*held.outcomes] == [DONE]
    assert held.until_ms >= found.until_ms[0] + 80_000
    assert await acknowledge(orders, [*found.handles]) == [DONE]


async def test_what_is_given_back_with_a_delay_waits_for_it(orders: Served) -> None:
    found = await receive(orders)
    given = pb.GiveBackRequest(group="g", handles=found.handles[:1], delay_ms=60_000)
    assert [*(await orders.shared.GiveBack(given)).outcomes] == [DONE]
    assert not (await receive(orders)).messages
    assert await acknowledge(orders, [*found.handles]) == [LATE, DONE, DONE, DONE]


async def test_handles_of_a_deleted_topic_are_told_so(orders: Served) -> None:
    found = await receive(orders)
    await orders.topics.DeleteTopic(kvcq_pb2.DeleteTopicRequest(name="orders"))
    assert await acknowledge(orders, [*found.handles]) == [ENDED] * 4


async def test_a_light_queue_is_shared_as_a_topic_is(served: Served) -> None:
    message = kvcq_pb2.Message(topic="t", body=b"x", light_queues=["%LMQ%mine"])
    await served.messages.Put(kvcq_pb2.PutRequest(message=message))
    found = await receive(served, topic="%LMQ%mine")
    assert [message.body for message in found.messages] == [b"x"]
    assert await acknowledge(served, [*found.handles]) == [DONE]


async def test_a_handle_that_is_none_is_named_by_its_place(orders: Served) -> None:
    found = await receive(orders)
    info = await refusal(acknowledge(orders, [*found.handles[:3], "forged"]))
    assert (info.reason, info.metadata["field"]) == ("INVALID_ARGUMENT", "handles[3]")
    # Nothing was acknowledged, and a handle of another group is none of this one.
    assert await acknowledge(orders, [*found.handles]) == [DONE] * 4
    await orders.shared.CreateGroup(pb.CreateGroupRequest(group="h"))
    info = await refusal(acknowledge(orders, [*found.handles], group="h"))
    assert info.metadata["field"] == "handles[0]"


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"invisible_ms": 0}, "invisible_ms"),
        ({"invisible_ms": 12 * 3_600_000 + 1}, "invisible_ms"),
        ({"max_messages": 1025}, "max_messages"),
        ({"max_bytes": -1}, "max_bytes"),
        ({"wait_ms": 60_001}, "wait_ms"),
        ({"form": 9}, "form"),
        ({"topic": "no topic!"}, "topic"),
        ({"group": ""}, "group"),
    ],
)
async def test_a_receive_out_of_bounds_is_refused_by_its_field(
    orders: Served, asked: dict[str, Any], field: str
) -> None:
    info = await refusal(receive(orders, **asked))
    assert (info.reason, info.metadata["field"]) == ("INVALID_ARGUMENT", field)
    assert not orders.store.list_groups(None, 10), "nothing was changed"


async def test_what_is_not_there_is_told_by_its_reason(orders: Served) -> None:
    assert (await refusal(receive(orders, topic="none"))).reason == "UNKNOWN_TOPIC"
    assert (await refusal(acknowledge(orders, ["x"], group="none"))).metadata["field"]
    info = await refusal(orders.shared.DescribeGroup(pb.DescribeGroupRequest(group="none")))
    assert (info.reason, info.metadata["group"]) == ("UNKNOWN_GROUP", "none")
    info = await refusal(orders.shared.UpdateGroup(pb.UpdateGroupRequest(group="none")))
    assert info.reason == "UNKNOWN_GROUP"


async def test_each_kind_of_group_refuses_the_calls_of_the_other(orders: Served) -> None:
    offset = kvcq_pb2.QueuePosition(topic="orders", queue_id=0, offset=1)
    by_offsets = kvcq_pb2.CommitOffsetsRequest(group="by-offsets", offsets=[offset])
    await orders.groups.CommitOffsets(by_offsets)
    await receive(orders)
    commit = kvcq_pb2.CommitOffsetsRequest(group="g", offsets=[offset])
    fetch = kvcq_pb2.FetchOffsetsRequest(group="g", queues=[kvcq_pb2.Queue(topic="orders")])
    reset = kvcq_pb2.ResetOffsetsRequest(group="g", topic="orders", earliest=True)
    update = pb.UpdateGroupRequest(group="by-offsets")
    calls: list[tuple[Awaitable[object], str]] = [
        (orders.groups.CommitOffsets(commit), "shared"),
        (orders.groups.FetchOffsets(fetch), "shared"),
        (orders.groups.ResetOffsets(reset), "shared"),
        (_subscribed(orders, "g"), "shared"),
        (receive(orders, group="by-offsets"), "reader"),
        (orders.shared.UpdateGroup(update), "reader"),
    ]
    for call, kind in calls:
        info = await refusal(call)
        assert (info.reason, info.metadata["kind"]) == ("GROUP_KIND", kind)
    described = await orders.shared.DescribeGroup(pb.DescribeGroupRequest(group="by-offsets"))
    assert not described.shared
    create = pb.CreateGroupRequest(group="by-offsets")
    assert (await refusal(orders.shared.CreateGroup(create))).reason == "GROUP_EXISTS"


async def _subscribed(served: Served, group: str) -> None:
    requests = [kvcq_pb2.SubscribeRequest(group=group, credit_bytes=1)]
    async for _ in served.messages.Subscribe(iter(requests)):
        pass


async def test_a_groups_settings_are_what_was_asked_for(served: Served) -> None:
    wanted = pb.SharedGroupSettings(
        max_deliveries=3,
        invisible_ms=5000,
        most_in_flight=10,
        paused=False,
        dead_letters_keep_ms=3_600_000,
        backoff=pb.Backoff(delays_ms=[0, 1000]),
    )
    made = await served.shared.CreateGroup(pb.CreateGroupRequest(group="g", settings=wanted))
    wanted.MergeFrom(pb.SharedGroupSettings(in_order=False, from_latest=False))
    assert made.settings == wanted
    changed = await served.shared.UpdateGroup(
        pb.UpdateGroupRequest(group="g", settings=pb.SharedGroupSettings(max_deliveries=5))
    )
    wanted.max_deliveries = 5
    assert changed.settings == wanted
    described = await served.shared.DescribeGroup(pb.DescribeGroupRequest(group="g"))
    assert (described.shared, described.settings) == (True, wanted)


async def test_a_group_in_order_has_a_maximum_only_if_it_is_given_one(served: Served) -> None:
    def in_order(**more: Any) -> pb.SharedGroupSettings:  # noqa: ANN401 - its fields
        return pb.SharedGroupSettings(in_order=True, **more)

    create = served.shared.CreateGroup
    without = await create(pb.CreateGroupRequest(group="without", settings=in_order()))
    assert not without.settings.HasField("max_deliveries")
    request = pb.CreateGroupRequest(group="with", settings=in_order(max_deliveries=3))
    assert (await create(request)).settings.max_deliveries == 3


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"max_deliveries": 0}, "max_deliveries"),
        ({"max_deliveries": 1001}, "max_deliveries"),
        ({"invisible_ms": 0}, "invisible_ms"),
        ({"most_in_flight": 10_001}, "most_in_flight"),
        ({"dead_letters_keep_ms": 1}, "dead_letters_keep_ms"),
        ({"backoff": pb.Backoff(delays_ms=[1, -1])}, "backoff.delays_ms[1]"),
        ({"backoff": pb.Backoff(delays_ms=[1] * 17)}, "backoff.delays_ms"),
        ({"in_order": True}, "in_order"),
        ({"from_latest": True}, "from_latest"),
    ],
)
async def test_a_setting_out_of_bounds_is_refused_by_its_field(
    served: Served, settings: dict[str, Any], field: str
) -> None:
    await served.shared.CreateGroup(pb.CreateGroupRequest(group="g"))
    wanted = pb.SharedGroupSettings(**settings)
    info = await refusal(
        served.shared.UpdateGroup(pb.UpdateGroupRequest(group="g", settings=wanted))
    )
    assert info.metadata["field"] == f"settings.{field}"
    if field not in ("in_order", "from_latest"):
        create = pb.CreateGroupRequest(group="h", settings=wanted)
        info = await refusal(served.shared.CreateGroup(create))
        assert info.metadata["field"] == f"settings.{field}"


async def test_the_calls_go_on_a_shared_stream_too(orders: Served) -> None:
    async with streaming(orders) as stream:
        await stream.send((1, "Receive", pb.ReceiveRequest(group="g", topic="orders")))
        found = pb.ReceiveResponse.FromString((await stream.result()).response)
        request = pb.AcknowledgeRequest(group="g", handles=found.handles)
        await stream.send((2, "Acknowledge", request))
        answer = pb.AcknowledgeResponse.FromString((await stream.result()).response)
        assert [*answer.outcomes] == [DONE] * 4


async def test_many_receives_of_one_moment_get_all_messages_once(served: Served) -> None:
    messages = [
        kvcq_pb2.Message(topic="orders", queue_id=at % 4, body=b"%d" % at) for at in range(400)
    ]
    await served.messages.PutBatch(kvcq_pb2.PutBatchRequest(messages=messages))
    answers = await asyncio.gather(*(receive(served, max_messages=7) for _ in range(80)))
    bodies = [message.body for answer in answers for message in answer.messages]
    assert sorted(bodies) == sorted(message.body for message in messages)
