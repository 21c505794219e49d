"""server/reads/receives.py over real gRPC: a receive waits for what it may be given, and nothing
else; what is handed over to nobody is given back."""

from __future__ import annotations

import asyncio
import threading
from time import perf_counter
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from kvcq_client.pb.v1 import kvcq_pb2
from kvcq_client.pb.v1 import shared_groups_pb2 as pb
from server.edge.call_gate import CallKind
from store.errors import AppendWouldWaitError
from store.groups import SharedGroups
from store.lite import queue_of
from store.lite.subscriptions import CLIENT_TIMEOUT_MS
from store.metadata import LiteGroup, SharedGroup
from tests.server.services.test_shared_group import acknowledge, receive, refusal
from tests.support.until import LIMIT_S, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store.groups import Received
    from tests.support.serving import Served

LONG_MS = 20_000


async def put(served: Served, *bodies: bytes, topic: str = "orders", queue_id: int = 0) -> None:
    messages = [kvcq_pb2.Message(topic=topic, queue_id=queue_id, body=body) for body in bodies]
    await served.messages.PutBatch(kvcq_pb2.PutBatchRequest(messages=messages))


def parked(served: Served, **asked: Any) -> asyncio.Task[pb.ReceiveResponse]:  # noqa: ANN401
    return asyncio.create_task(receive(served, **{"wait_ms": LONG_MS, **asked}))


async def until_parked(served: Served, count: int, *, group: str = "g") -> None:
    def waiting() -> int:
        lines = served.serving.reads._receives.lines._by_group.get(group, {})
        return sum(len(line._waiting) for line in lines.values())

    await until(lambda: waiting() == count)


def bodies(answer: pb.ReceiveResponse) -> list[bytes]:
    return [message.body for message in answer.messages]


async def drained(served: Served) -> None:
    """A topic whose messages are all acknowledged by the group."""
    await put(served, b"before")
    found = await receive(served)
    await acknowledge(served, [*found.handles])


async def test_a_message_in_any_queue_goes_to_one_of_those_who_wait(served: Served) -> None:
    await drained(served)
    waiting = [parked(served) for _ in range(3)]
    await until_parked(served, 3)
    assert served.serving.reads.growth.watched_queues == 1, "all queues of the topic are one"
    await put(served, b"a", queue_id=3)
    done, left = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    assert [bodies(one.result()) for one in done] == [[b"a"]]
    await until_parked(served, 2)
    await put(served, b"b", b"c", queue_id=1)
    await put(served, b"d", queue_id=2)
    answers = await asyncio.gather(*left)
    assert sorted(body for answer in answers for body in bodies(answer)) in (
        [b"b", b"c", b"d"],
        [b"b", b"c"],
    )


async def test_many_messages_that_come_together_reach_all_who_wait(served: Served) -> None:
    await drained(served)
    waiting = [parked(served, max_messages=1) for _ in range(40)]
    await until_parked(served, 40)
    await put(served, *(b"%d" % number for number in range(40)))
    answers = await asyncio.gather(*waiting)
    found = sorted(int(body) for answer in answers for body in bodies(answer))
    assert found == [*range(40)]
    await until(lambda: not served.serving.reads.growth.watched_queues)


async def test_who_came_first_is_served_first(served: Served) -> None:
    await drained(served)
    first = parked(served, max_messages=1)
    await until_parked(served, 1)
    second = parked(served, max_messages=1)
    await until_parked(served, 2)
    await put(served, b"a")
    assert bodies(await first) == [b"a"]
    assert not second.done()
    await put(served, b"b")
    assert bodies(await second) == [b"b"]


async def test_who_acknowledges_with_a_receive_passes_nobody_who_waits(served: Served) -> None:
    await put(served, b"a")
    found = await receive(served)
    waiting = parked(served)
    await until_parked(served, 1)
    answer = await receive(served, acknowledge=[*found.handles], max_messages=1)
    assert ([*answer.outcomes], bodies(answer)) == ([pb.HANDLE_OUTCOME_DONE], [])
    await put(served, b"b")
    assert bodies(await waiting) == [b"b"]


async def test_the_end_of_a_lease_wakes_who_waits(served: Served) -> None:
    await put(served, b"a")
    first = await receive(served, invisible_ms=300)
    again = await asyncio.wait_for(parked(served), LIMIT_S)
    assert (bodies(again), [*again.deliveries]) == ([b"a"], [2])
    assert await acknowledge(served, [*first.handles]) == [pb.HANDLE_OUTCOME_NOT_IN_FLIGHT]


async def test_a_short_lease_behind_a_long_one_is_not_slept_through(served: Served) -> None:
    await put(served, b"a")
    await receive(served, invisible_ms=3_600_000)
    waiting = parked(served)
    await until_parked(served, 1)
    # Handed over to another who asked without waiting.
    other = asyncio.create_task(receive(served, invisible_ms=200, topic="orders", wait_ms=0))
    await put(served, b"b")
    found = await other
    answer = await asyncio.wait_for(waiting, LIMIT_S)
    assert bodies(answer) == [b"b"]
    assert [*answer.deliveries] == [len(found.messages) + 1]


async def test_what_is_given_back_wakes_who_waits(served: Served) -> None:
    await put(served, b"a")
    found = await receive(served)
    waiting = parked(served)
    await until_parked(served, 1)
    await served.shared.GiveBack(pb.GiveBackRequest(group="g", handles=found.handles, delay_ms=0))
    assert bodies(await asyncio.wait_for(waiting, LIMIT_S)) == [b"a"]


async def test_what_is_given_back_with_a_delay_wakes_after_it(served: Served) -> None:
    await put(served, b"a")
    found = await receive(served)
    waiting = parked(served)
    await until_parked(served, 1)
    given = pb.GiveBackRequest(group="g", handles=found.handles, delay_ms=300)
    began = perf_counter()
    await served.shared.GiveBack(given)
    assert bodies(await asyncio.wait_for(waiting, LIMIT_S)) == [b"a"]
    assert perf_counter() - began > 0.2


async def test_room_in_a_full_group_wakes_who_waits(served: Served) -> None:
    settings = pb.SharedGroupSettings(most_in_flight=1)
    await served.shared.CreateGroup(pb.CreateGroupRequest(group="g", settings=settings))
    await put(served, b"a", b"b")
    found = await receive(served)
    assert bodies(found) == [b"a"]
    waiting = parked(served)
    await until_parked(served, 1)
    await acknowledge(served, [*found.handles])
    assert bodies(await asyncio.wait_for(waiting, LIMIT_S)) == [b"b"]


async def test_a_group_that_goes_on_wakes_who_waits(served: Served) -> None:
    def paused(value: bool) -> pb.UpdateGroupRequest:
        return pb.UpdateGroupRequest(group="g", settings=pb.SharedGroupSettings(paused=value))

    await drained(served)
    await served.shared.UpdateGroup(paused(True))
    await put(served, b"a")
    waiting = parked(served)
    await until_parked(served, 1)
    await served.shared.UpdateGroup(paused(False))
    assert bodies(await asyncio.wait_for(waiting, LIMIT_S)) == [b"a"]


async def test_a_wait_in_vain_is_no_error(served: Served) -> None:
    await drained(served)
    assert not (await receive(served, wait_ms=30)).messages
    await until(lambda: not served.serving.reads.growth.watched_queues)


async def test_each_waits_as_long_as_it_asked_for(served: Served) -> None:
    await drained(served)
    long = parked(served)
    await until_parked(served, 1)
    assert not (await asyncio.wait_for(receive(served, wait_ms=50), LIMIT_S)).messages
    assert not long.done()
    long.cancel()
    await until_parked(served, 0)


async def test_the_deletion_of_the_topic_is_told_to_all_who_wait(served: Served) -> None:
    await drained(served)
    waiting = [parked(served) for _ in range(20)]
    await until_parked(served, 20)
    await served.topics.DeleteTopic(kvcq_pb2.DeleteTopicRequest(name="orders"))
    for each in waiting:
        assert (await refusal(asyncio.wait_for(each, LIMIT_S))).reason == "UNKNOWN_TOPIC"


async def test_the_deletion_of_the_group_is_told_and_nobody_makes_it_again(served: Served) -> None:
    await drained(served)
    waiting = [parked(served) for _ in range(20)]
    await until_parked(served, 20)
    await served.groups.DeleteGroup(kvcq_pb2.DeleteGroupRequest(group="g"))
    for each in waiting:
        assert (await refusal(asyncio.wait_for(each, LIMIT_S))).reason == "UNKNOWN_GROUP"
    assert served.store.list_groups(None, 10) == []


async def test_a_light_queue_is_waited_for_before_its_first_message(served: Served) -> None:
    waiting = parked(served, topic="%LMQ%mine")
    await until_parked(served, 1)
    message = kvcq_pb2.Message(topic="t", body=b"x", light_queues=["%LMQ%mine"])
    await served.messages.Put(kvcq_pb2.PutRequest(message=message))
    assert bodies(await asyncio.wait_for(waiting, LIMIT_S)) == [b"x"]
    again = parked(served, topic="%LMQ%mine")
    await until_parked(served, 1)
    await served.topics.DeleteTopic(kvcq_pb2.DeleteTopicRequest(name="%LMQ%mine"))
    assert (await refusal(asyncio.wait_for(again, LIMIT_S))).reason == "UNKNOWN_TOPIC"


async def test_draining_answers_those_who_wait_with_nothing(served: Served) -> None:
    await drained(served)
    waiting = [parked(served) for _ in range(30)]
    await until_parked(served, 30)
    served.server.stop()
    assert [bodies(answer) for answer in await asyncio.gather(*waiting)] == [[]] * 30


async def test_who_went_away_is_handed_nothing(served: Served) -> None:
    await drained(served)
    gone = parked(served)
    await until_parked(served, 1)
    gone.cancel()
    await until_parked(served, 0)
    await put(served, b"a")
    found = await receive(served)
    assert (bodies(found), [*found.deliveries]) == ([b"a"], [1])


@pytest.fixture
def held_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[tuple[threading.Event, threading.Event]]:
    """Looks end in the store, and wait for the second event before they are answered; the first
    tells that one does."""
    is_held, may_go = threading.Event(), threading.Event()
    given = SharedGroups.receive

    def held(self: SharedGroups, *args: Any, **kwargs: Any) -> Received:  # noqa: ANN401
        if kwargs["at_once"]:
            raise AppendWouldWaitError("of a test")
        received = given(self, *args, **kwargs)
        if received.deliveries and not may_go.is_set():
            is_held.set()
            may_go.wait(30)
        return received

    monkeypatch.setattr(SharedGroups, "receive", held)
    yield is_held, may_go
    may_go.set()


async def test_what_was_handed_over_to_nobody_is_given_back(
    served: Served, held_looks: tuple[threading.Event, threading.Event]
) -> None:
    is_held, may_go = held_looks
    await put(served, b"a")
    gone = parked(served)
    await until(is_held.is_set)
    next_one = parked(served)
    gate = served.server._edge.gate
    await until(lambda: gate.under_way(CallKind.PULL) == 2)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    await until(lambda: gate.under_way(CallKind.PULL) == 1)
    may_go.set()
    # Not after the minute that the message was handed over for.
    assert bodies(await asyncio.wait_for(next_one, LIMIT_S)) == [b"a"]


async def test_what_an_attempt_was_given_is_given_back_when_its_caller_has_gone(
    served: Served, held_looks: tuple[threading.Event, threading.Event]
) -> None:
    is_held, may_go = held_looks
    await put(served, b"a")
    gone = parked(served, attempt_id="one")
    await until(is_held.is_set)
    next_one = parked(served)
    gate = served.server._edge.gate
    await until(lambda: gate.under_way(CallKind.PULL) == 2)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    await until(lambda: gate.under_way(CallKind.PULL) == 1)
    may_go.set()
    assert bodies(await asyncio.wait_for(next_one, LIMIT_S)) == [b"a"]
    assert not served.serving.reads._receives._attempts


async def test_what_was_handed_over_to_an_attempt_stays_for_the_one_that_makes_it_again(
    served: Served, held_looks: tuple[threading.Event, threading.Event]
) -> None:
    is_held, may_go = held_looks
    await put(served, b"a")
    gone = parked(served, attempt_id="one")
    await until(is_held.is_set)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    gate = served.server._edge.gate
    await until(lambda: gate.under_way(CallKind.PULL) == 0)
    made_again = asyncio.create_task(receive(served, attempt_id="one"))
    await until(lambda: gate.under_way(CallKind.PULL) == 1)
    may_go.set()
    again = await made_again
    assert (bodies(again), [*again.deliveries]) == ([b"a"], [1])
    await until(lambda: not served.serving.reads._receives._giving_back)
    assert await acknowledge(served, [*again.handles]) == [pb.HANDLE_OUTCOME_DONE]


async def test_a_lone_receive_and_its_acknowledgement_need_no_thread(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await drained(served)
    await put(served, b"a", b"b")

    def in_thread(*_: object) -> None:
        raise AssertionError("in a thread")

    monkeypatch.setattr("server.workers.Workers.run", in_thread)
    first = await receive(served, max_messages=1, wait_ms=1)
    assert bodies(first) == [b"a"]
    assert await acknowledge(served, [*first.handles]) == [pb.HANDLE_OUTCOME_DONE]
    second = await receive(served, max_messages=1, acknowledge=[*first.handles])
    assert ([*second.outcomes], bodies(second)) == ([pb.HANDLE_OUTCOME_NOT_IN_FLIGHT], [b"b"])
    last = await receive(served, acknowledge=[*second.handles])
    assert ([*last.outcomes], bodies(last)) == ([pb.HANDLE_OUTCOME_DONE], [])


async def test_a_wait_ends_before_the_callers_deadline(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.reads.reads.DEADLINE_MARGIN_S", 30.0)  # for a busy machine
    await drained(served)
    request = pb.ReceiveRequest(group="g", topic="orders", wait_ms=LONG_MS)
    assert not (await served.shared.Receive(request, timeout=30.5)).messages


async def test_a_call_that_fails_lets_the_next_one_look(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await drained(served)
    waiting = [parked(served) for _ in range(3)]
    await until_parked(served, 3)
    given, fails = SharedGroups.receive, [True]

    def failing(self: SharedGroups, *args: Any, **kwargs: Any) -> Received:  # noqa: ANN401
        if fails:
            fails.pop()
            raise RuntimeError("of a test")
        return given(self, *args, **kwargs)

    monkeypatch.setattr(SharedGroups, "receive", failing)
    await put(served, b"a")
    done, left = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    if not any(one.exception() is None for one in done):
        more, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
        done |= more
    outcomes = [one.exception() for one in done]
    assert sorted(isinstance(one, grpc.aio.AioRpcError) for one in outcomes) == [False, True]
    for each in left:
        each.cancel()


async def test_the_next_message_of_a_key_wakes_who_waits_when_the_one_before_is_done(
    served: Served,
) -> None:
    settings = pb.SharedGroupSettings(in_order=True)
    await served.shared.CreateGroup(pb.CreateGroupRequest(group="g", settings=settings))
    messages = [
        kvcq_pb2.Message(topic="orders", body=body, ordering_key="k") for body in (b"a", b"b")
    ]
    await served.messages.PutBatch(kvcq_pb2.PutBatchRequest(messages=messages))
    found = await receive(served, max_messages=1)
    assert bodies(found) == [b"a"]
    waiting = parked(served)
    await until_parked(served, 1)
    await acknowledge(served, [*found.handles])
    assert bodies(await asyncio.wait_for(waiting, LIMIT_S)) == [b"b"]


async def test_a_call_that_is_sent_again_gets_what_the_first_one_got(served: Served) -> None:
    settings = pb.SharedGroupSettings(in_order=True)
    await served.shared.CreateGroup(pb.CreateGroupRequest(group="g", settings=settings))
    await put(served, b"a", b"b")
    first = await receive(served, max_messages=1, attempt_id="once")
    again = await receive(served, max_messages=1, attempt_id="once", wait_ms=1000)
    assert [*again.handles] == [*first.handles]
    info = await refusal(receive(served, attempt_id="x" * 65))
    assert info.metadata["field"] == "attempt_id"


@pytest.mark.damages
async def test_a_damaged_message_is_told_and_skipped_by_who_asks_for_it(served: Served) -> None:
    await put(served, b"bad" * 99, b"good")
    store = served.store
    record = store.pull("orders", 0, 0).records[0]
    at = store.log.start_offset
    while store.log.read_at(at) != record:
        at += len(store.log.read_at(at))
    segment = store.log._segments.find(at)
    assert segment is not None
    segment.buffer[at - segment.start_offset + 90] ^= 1
    assert (await refusal(receive(served))).reason == "CORRUPT_RECORD"
    found = await receive(served, skip_damaged=True)
    assert bodies(found) == [b"good"]
    await acknowledge(served, [*found.handles])
    assert not (await receive(served)).messages


async def test_no_queue_of_a_group_in_order_waits_for_all_others(served: Served) -> None:
    """Each receive is made twice: the loop leaves it to a thread."""
    served.store.create_topics([("orders", 2)])
    served.store.groups.create("g", SharedGroup(in_order=True))
    for queue_id in (0, 1):
        await put(served, *(b"%d" % queue_id for _ in range(4)), queue_id=queue_id)
    seen: list[bytes] = []
    for _ in range(4):
        found = await receive(served, max_messages=1)
        await acknowledge(served, [*found.handles])
        seen += bodies(found)
    assert sorted(seen) == [b"0", b"0", b"1", b"1"]


async def test_clients_that_wait_behind_others_for_lite_topics_are_there(served: Served) -> None:
    """None of them looks while there is nothing to receive, for minutes."""
    store, lines = served.store, served.serving.reads._receives.lines
    store.lite.make("p")
    store.groups.create("g", SharedGroup(lite=LiteGroup("p", is_wildcard=True)))
    first = parked(served, topic="p", client_id="a")
    await until(lambda: lines.waiting == 1)
    second = parked(served, topic="p", client_id="b")
    await until(lambda: lines.waiting == 2)
    subscriptions = store.lite.subscriptions
    for client in subscriptions._groups["g"].clients.values():
        client.seen_ms -= CLIENT_TIMEOUT_MS
    third = parked(served, topic="p", client_id="c")
    await until(lambda: lines.waiting == 3)
    subscriptions.expire(store.lease_time_ms())
    first.cancel()
    message = kvcq_pb2.Message(topic="p", body=b"x", light_queues=[queue_of("p", "s")])
    await served.messages.Put(kvcq_pb2.PutRequest(message=message))
    done, left = await asyncio.wait({second, third}, return_when=asyncio.FIRST_COMPLETED)
    assert [bodies(one.result()) for one in done] == [[b"x"]]
    for one in left:
        one.cancel()
