"""Lite topics for RocketMQ's clients: subscriptions, receives, and what ends them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from kvcq_client import AsyncClient, Message, lite_queue
from server.rocketmq.pb import messaging_pb2 as pb
from server.rocketmq.pb import values_pb2 as v2
from store.lite import Action
from store.metadata import LiteGroup, MessageType, SharedGroup
from tests.server.rocketmq.client import Client, handle_of
from tests.support.serving import serving

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.support.serving import Served


def settings(
    kind: v2.ClientType = v2.LITE_PUSH_CONSUMER, group: str = "g", topic: str = "chats"
) -> v2.Settings:
    entry = v2.SubscriptionEntry(topic=v2.Resource(name=topic))
    subscription = v2.Subscription(group=v2.Resource(name=group), subscriptions=[entry])
    return v2.Settings(client_type=kind, subscription=subscription)


@pytest.fixture
def client(served: Served) -> Client:
    served.store.create_topics([("chats", 4)], types={"chats": MessageType.LITE})
    return Client(served.channel, "a")


def client_of(client: Client, name: str) -> Client:
    """Another one on the same connection."""
    other = Client.__new__(Client)
    other.call, other._ids = client.call, 1000
    other.metadata = (("x-mq-client-id", name),)
    return other


def texts(messages: Iterable[v2.Message]) -> list[str]:
    return [each.body.decode() for each in messages]


async def say(client: Client, *bodies: str, lite: str = "tea", topic: str = "chats") -> None:
    for body in bodies:
        answer = await client.send(client.message(topic, body.encode(), lite_topic=lite))
        assert answer.status.code == v2.OK, answer.status


# --- messages ------------------------------------------------------------------------------


async def test_a_client_receives_what_is_sent_to_its_lite_topics_and_no_other(
    served: Served, client: Client
) -> None:
    assert (await client.sync("g", "chats", "tea", "milk")).code == v2.OK
    await say(client, "t0", "t1")
    await say(client, "m0", lite="milk")
    await say(client, "c0", lite="coffee")
    got: list[v2.Message] = []
    while len(got) < 3:
        status, some = await client.receive("g", "chats", poll_s=5)
        assert status.code == v2.OK
        got += some
        done = await client.acknowledge("g", "chats", [handle_of(each) for each in some])
        assert done.status.code == v2.OK
    assert [each.body for each in got if each.system_properties.lite_topic == "tea"] == [
        b"t0",
        b"t1",
    ]
    assert sorted(texts(got)) == ["m0", "t0", "t1"]
    for each in got:
        system = each.system_properties
        assert (each.topic.name, system.message_type) == ("chats", v2.LITE)
        assert dict(each.user_properties) == {}
    of_tea = [each.system_properties for each in got if each.system_properties.lite_topic == "tea"]
    assert [each.queue_offset for each in of_tea] == [0, 1], "offsets are those of the lite topic"
    assert len({each.queue_id for each in of_tea}) == 1, "and the queue is the parent's"
    status, nothing = await client.receive("g", "chats")
    assert (status.code, nothing) == (v2.MESSAGE_NOT_FOUND, [])
    assert sorted(served.store.lite.listing.names("chats", "", "", 9)) == ["coffee", "milk", "tea"]


async def test_the_parent_has_them_too_for_groups_of_another_kind(client: Client) -> None:
    stream = client.telemetry()
    await client.settle(stream, settings(v2.SIMPLE_CONSUMER, "audit"))
    await say(client, "t0")
    _, (got,) = await client.receive("audit", "chats")
    assert (got.body, got.system_properties.lite_topic) == (b"t0", "tea")
    assert got.system_properties.message_type == v2.LITE
    stream.cancel()


async def test_messages_of_a_lite_topic_are_in_order_until_each_is_done(client: Client) -> None:
    await client.sync("g", "chats", "tea")
    await say(client, "t0", "t1")
    _, (first,) = await client.receive("g", "chats")
    status, _ = await client.receive("g", "chats")
    assert status.code == v2.MESSAGE_NOT_FOUND
    waiting = asyncio.create_task(client.receive("g", "chats", poll_s=20))
    await client.acknowledge("g", "chats", [handle_of(first)])
    _, (second,) = await waiting
    assert second.body == b"t1"


async def test_what_kvcqs_client_puts_is_received_and_the_other_way_round(
    served: Served, client: Client
) -> None:
    await client.sync("g", "chats", "tea")
    async with AsyncClient(served.target) as ours:
        await ours.put(Message("chats", b"ours", light_queues=(lite_queue("chats", "tea"),)))
        _, (got,) = await client.receive("g", "chats", poll_s=5)
        assert (got.body, got.system_properties.lite_topic) == (b"ours", "tea")
        await say(client, "theirs")
        pulled = await ours.pull(lite_queue("chats", "tea"), 0, 1)
        assert [each.body for each in pulled.messages] == [b"theirs"]


@pytest.mark.parametrize("poll_s", [0, 20])
async def test_what_is_given_back_suspended_does_not_count(client: Client, poll_s: float) -> None:
    await client.sync("g", "chats", "tea")
    await say(client, "t0")
    for suspend, attempt in ((True, 1), (True, 1), (False, 2)):
        _, (got,) = await client.receive("g", "chats", poll_s=5)
        handle = handle_of(got)
        changed = await client.change(
            "g", "chats", handle, 0.0 if poll_s == 0 else 0.2, suspend=suspend, lite_topic="tea"
        )
        assert changed.status.code == v2.OK
        _, (again,) = await client.receive("g", "chats", poll_s=5)
        assert again.system_properties.delivery_attempt == attempt
        await client.change("g", "chats", handle_of(again), 0, suspend=True)


@pytest.mark.parametrize(
    ("system", "code"),
    [
        ({"lite_topic": ""}, v2.ILLEGAL_LITE_TOPIC),
        ({"message_type": v2.LITE}, v2.ILLEGAL_LITE_TOPIC),
        ({"lite_topic": "x" * 65}, v2.ILLEGAL_LITE_TOPIC),
        ({"lite_topic": "a b"}, v2.ILLEGAL_LITE_TOPIC),
        ({"lite_topic": "a$b"}, v2.ILLEGAL_LITE_TOPIC),
        ({"lite_topic": "é"}, v2.ILLEGAL_LITE_TOPIC),
        ({"lite_topic": "s", "priority": 1}, v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ({"lite_topic": "s", "message_group": "g"}, v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        (
            {"lite_topic": "s", "delivery_timestamp": Timestamp(seconds=1)},
            v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
        ),
        (
            {"lite_topic": "s", "message_type": v2.TRANSACTION},
            v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
        ),
        ({}, v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
    ],
)
@pytest.mark.parametrize("topic", ["chats", "mixed"])
async def test_a_bad_lite_message_is_refused_and_nothing_is_stored(
    served: Served, client: Client, topic: str, system: dict[str, Any], code: v2.Code
) -> None:
    served.store.lite.make("mixed")
    answer = await client.send(client.message(topic, **system))
    if topic == "mixed" and not system:
        assert answer.status.code == v2.OK, "a topic for any type that is made for lite topics too"
        return
    assert answer.status.code == code, answer.status
    assert served.store.bounds([(topic, each) for each in range(4)]) == [(0, 0)] * 4


async def test_a_topic_is_for_lite_topics_when_it_is_made_so(
    served: Served, client: Client
) -> None:
    sent = await client.send(client.message("orders", lite_topic="tea"))
    assert sent.status.code == v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    assert "kvcq lite create" in sent.status.message
    assert (await client.sync("g", "orders", "tea")).code == v2.TOPIC_NOT_FOUND
    await client.route("orders")
    assert (await client.sync("g", "orders", "tea")).code == v2.ILLEGAL_TOPIC
    served.store.lite.make("orders")
    types = (await client.route("orders")).message_queues[0].accept_message_types
    assert set(types) == {v2.NORMAL, v2.FIFO, v2.DELAY, v2.TRANSACTION, v2.LITE}
    await say(client, "t0", topic="orders")
    assert (await client.sync("g", "orders", "tea")).code == v2.OK
    _, (got,) = await client.receive("g", "orders")
    assert got.body == b"t0"


# --- subscriptions -------------------------------------------------------------------------


async def test_each_action_changes_what_a_client_has(served: Served, client: Client) -> None:
    def names() -> set[str]:
        group = served.store.lite.subscriptions._groups.get("g")
        return set(group.clients["a"].names) if group and "a" in group.clients else set()

    for action, some, left in (
        (v2.PARTIAL_ADD, ["a", "b"], {"a", "b"}),
        (v2.PARTIAL_ADD, list("room"), {"a", "b", "r", "o", "m"}),  # as Python's client sends one
        (v2.PARTIAL_REMOVE, ["a", "nobody"], {"b", "r", "o", "m"}),
        (v2.COMPLETE_ADD, ["room"], {"room"}),
        (v2.COMPLETE_REMOVE, [], set[str]()),
    ):
        assert (await client.sync("g", "chats", *some, action=action)).code == v2.OK
        assert names() == left
    unknown: Any = 9
    assert (await client.sync("g", "chats", "a", action=unknown)).code == v2.BAD_REQUEST
    await client.sync("g", "chats", "new", version=2)
    await client.sync("g", "chats", "late", version=1)
    assert names() == {"new"}
    assert (await client.sync("g", "chats", "n", version=-1)).code == v2.BAD_REQUEST


@pytest.mark.parametrize(
    ("option", "first"),
    [
        ({}, "0"),
        ({"policy": v2.OffsetOption.LAST}, "0"),
        ({"policy": v2.OffsetOption.MIN}, "0"),
        ({"policy": v2.OffsetOption.MAX}, "new"),
        ({"offset": 2}, "2"),
        ({"tail_n": 1}, "2"),
        ({"timestamp": 1}, "0"),
        ({"timestamp": 1 << 45}, "new"),
    ],
)
async def test_a_new_subscription_begins_where_its_option_says(
    client: Client, option: dict[str, Any], first: str
) -> None:
    await say(client, "0", "1", "2")
    given = v2.OffsetOption(**option)
    assert (await client.sync("g", "chats", "tea", offset_option=given)).code == v2.OK
    await say(client, "new")
    _, (got,) = await client.receive("g", "chats")
    assert got.body == first.encode()


@pytest.mark.parametrize("field", ["offset", "tail_n", "timestamp"])
async def test_an_offset_below_zero_is_refused(client: Client, field: str) -> None:
    given: Any = {field: -1}
    status = await client.sync("g", "chats", "tea", offset_option=v2.OffsetOption(**given))
    assert status.code == v2.ILLEGAL_OFFSET


async def test_quotas_and_bad_names_have_their_codes(served: Served, client: Client) -> None:
    lite = LiteGroup("chats", client_quota=2)
    served.store.groups.create("few", SharedGroup(lite=lite))
    exceeded = v2.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
    assert (await client.sync("few", "chats", "a", "b")).code == v2.OK
    assert (await client.sync("few", "chats", "c", action=v2.PARTIAL_ADD)).code == exceeded
    assert (await client.sync("few", "chats", "a", "b", "c")).code == exceeded
    many = map(str, range(10_001))
    assert (await client.sync("few", "chats", *many)).code == exceeded
    for name in ("", "x" * 65, "a b", "a$b"):
        assert (await client.sync("few", "chats", "a", name)).code == v2.ILLEGAL_LITE_TOPIC
    assert served.store.lite.subscriptions.subscribed == 2
    assert (await client.sync("few", "orders", "a")).code == v2.ILLEGAL_TOPIC
    served.store.groups.create("plain")
    assert (await client.sync("plain", "chats", "a")).code == v2.ILLEGAL_CONSUMER_GROUP
    stream = client.telemetry()
    told = (await client.settle(stream, settings(group="few"))).settings.subscription
    assert (told.lite_subscription_quota, told.max_lite_topic_size) == (2, 64)
    stream.cancel()


async def test_more_new_groups_than_a_second_allows_are_refused(client: Client) -> None:
    codes = {
        (await client.sync(f"g{number}", "chats", "tea")).code
        for number in range(400)  # in less than three seconds
    }
    assert codes <= {v2.OK, v2.TOO_MANY_REQUESTS}


async def test_a_group_is_not_made_where_clients_make_none(tmp_path: Path) -> None:
    async with serving(tmp_path, store={"auto_create_groups": False}) as served:
        served.store.lite.make("chats")
        client = Client(served.channel, "a")
        assert (await client.sync("g", "chats", "tea")).code == v2.CONSUMER_GROUP_NOT_FOUND
        served.store.groups.create("g", SharedGroup(lite=LiteGroup("chats")))
        assert (await client.sync("g", "chats", "tea")).code == v2.OK


# --- clients -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [v2.LITE_PUSH_CONSUMER, v2.LITE_SIMPLE_CONSUMER])
async def test_settings_of_a_lite_consumer_make_its_group(
    served: Served, client: Client, kind: v2.ClientType
) -> None:
    early, _ = await client.receive("g", "chats")
    assert early.code == v2.UNRECOGNIZED_CLIENT_TYPE, "it may be for the parent itself"
    stream = client.telemetry()
    answer = await client.settle(stream, settings(kind))
    assert answer.status.code == v2.OK
    told = answer.settings.subscription
    assert told.fifo
    assert (told.lite_subscription_quota, told.max_lite_topic_size) == (2000, 64)
    assert answer.settings.backoff_policy.max_attempts == 17
    made = served.store.groups.describe("g")
    assert made is not None
    assert (made.lite, made.in_order) == (LiteGroup("chats"), True)
    # It receives before it is subscribed to anything, and is woken when it is.
    waiting = asyncio.create_task(client.receive("g", "chats", poll_s=20, auto_renew=True))
    await say(client, "t0")
    await client.sync("g", "chats", "tea", action=v2.PARTIAL_ADD)
    status, (got,) = await waiting
    assert (status.code, got.body) == (v2.OK, b"t0")
    other = client_of(client, "plain")
    await other.settle(other.telemetry(), settings(v2.SIMPLE_CONSUMER))
    refused, _ = await other.receive("g", "chats")
    assert refused.code == v2.ILLEGAL_CONSUMER_GROUP
    wrong = await client.settle(stream, settings(kind, "other", "none"))
    assert wrong.status.code == v2.TOPIC_NOT_FOUND


async def test_after_a_restart_a_client_is_served_before_it_says_anything_again(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as served:
        served.store.lite.make("chats")
        client = Client(served.channel, "a")
        await client.sync("g", "chats", "tea")
        await say(client, "t0", "t1")
        _, (first,) = await client.receive("g", "chats")
    async with serving(tmp_path) as served:
        client = Client(served.channel, "a")
        waiting = asyncio.create_task(client.receive("g", "chats", poll_s=20))
        done = await client.acknowledge("g", "chats", [handle_of(first)])
        assert done.status.code == v2.OK
        await client.sync("g", "chats", "tea")
        _, (second,) = await waiting
        assert second.body == b"t1"


async def test_who_loses_a_lite_topic_is_told_on_its_stream(served: Served, client: Client) -> None:
    lite = LiteGroup("chats", is_exclusive=True)
    served.store.groups.create("one", SharedGroup(in_order=True, lite=lite))
    stream = client.telemetry()
    await client.settle(stream, settings(group="one"))
    names = [f"s{number}" for number in range(40)]  # more than wait on a stream
    await client.sync("one", "chats", "kept", *names)
    waiting = asyncio.create_task(client.receive("one", "chats", poll_s=20))
    other = client_of(client, "b")
    await other.sync("one", "chats", *names)
    lost = {
        (await stream.read()).notify_unsubscribe_lite_command.lite_topic for _ in range(len(names))
    }
    assert lost == set(names)
    status, _ = await waiting
    assert status.code == v2.MESSAGE_NOT_FOUND
    # Its next complete set, made before it heard of it, takes nothing back, and is told again.
    assert (await client.sync("one", "chats", "kept", *names)).code == v2.OK
    assert (await stream.read()).HasField("notify_unsubscribe_lite_command")
    await say(client, "t0", lite="s7")
    _, (got,) = await other.receive("one", "chats", poll_s=5)
    assert got.body == b"t0"
    stream.cancel()


async def test_a_client_that_ends_leaves_and_its_messages_are_anothers(
    served: Served, client: Client
) -> None:
    await client.sync("g", "chats", "tea")
    await say(client, "t0")
    await client.receive("g", "chats", auto_renew=True)
    other = client_of(client, "b")
    await other.sync("g", "chats", "tea")
    waiting = asyncio.create_task(other.receive("g", "chats", poll_s=20))
    assert (await client.end("g")).code == v2.OK
    assert served.store.lite.subscriptions.clients == 1
    _, (got,) = await waiting
    assert (got.body, got.system_properties.delivery_attempt) == (b"t0", 2)
    assert (await client.end("no such group")).code == v2.OK


async def test_clients_of_a_wildcard_group_need_no_names(served: Served, client: Client) -> None:
    served.store.groups.create("all", SharedGroup(lite=LiteGroup("chats", is_wildcard=True)))
    await say(client, "t0")
    await say(client, "m0", lite="milk")
    got: list[str] = []
    while len(got) < 2:
        status, some = await client.receive("all", "chats", poll_s=5)
        assert status.code == v2.OK
        got += texts(some)
    assert sorted(got) == ["m0", "t0"]
    assert (await client.sync("all", "chats")).code == v2.OK


async def test_a_filter_is_refused(client: Client) -> None:
    await client.sync("g", "chats", "tea")
    status, _ = await client.receive("g", "chats", filter_="a")
    assert status.code == v2.ILLEGAL_FILTER_EXPRESSION


async def test_a_lite_topic_that_ended_is_no_loss_of_its_subscription(
    served: Served, client: Client
) -> None:
    await client.sync("g", "chats", "tea")
    await say(client, "t0")
    assert served.store.lite.delete("chats", ["tea"]) == 1
    await say(client, "t1")
    _, (got,) = await client.receive("g", "chats", poll_s=5)
    assert got.body == b"t1"


async def test_dead_letters_of_a_lite_topic_name_it(client: Client) -> None:
    await client.sync("g", "chats", "tea")
    await say(client, "t0", "t1")
    _, (got,) = await client.receive("g", "chats")
    request = pb.ForwardMessageToDeadLetterQueueRequest(
        group=v2.Resource(name="g"),
        topic=v2.Resource(name="chats"),
        receipt_handle=handle_of(got),
        lite_topic="tea",
    )
    answer = await client.call.ForwardMessageToDeadLetterQueue(request, metadata=client.metadata)
    assert answer.status.code == v2.OK
    _, (following,) = await client.receive("g", "chats", poll_s=5)
    assert following.body == b"t1"
    _, (letter,) = await client_of(client, "reader").receive("readers", "%DLQ%g", poll_s=5)
    system = letter.system_properties
    assert (letter.body, system.lite_topic) == (b"t0", "tea")
    assert (system.dead_letter_queue.topic, letter.topic.name) == ("chats", "%DLQ%g")


async def test_behind_fronts_it_is_the_same(tmp_path: Path) -> None:
    async with serving(tmp_path, workers=2) as served:
        served.store.lite.make("chats")
        client = Client(served.channel, "a")
        stream = client.telemetry()
        assert (await client.settle(stream, settings())).settings.subscription.fifo
        assert (await client.sync("g", "chats", "tea")).code == v2.OK
        await say(client, "t0")
        _, (got,) = await client.receive("g", "chats", poll_s=5)
        assert got.body == b"t0"
        served.store.lite.sync("g", "b", Action.ADD, ["tea"])
        stream.cancel()
