"""Receivers of lite topics, against a served store."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from kvcq_client import (
    AsyncClient,
    Client,
    InvalidArgumentError,
    LiteParent,
    LiteSettings,
    NotFoundError,
    NotPossibleError,
    Outcome,
    ResourceExhaustedError,
    lite_queue,
)
from tests.support.until import until

if TYPE_CHECKING:
    from kvcq_client import AsyncLiteReceiver
    from tests.support.serving import Served

pytestmark = pytest.mark.integration

PARENT = "agents"


async def say(client: AsyncClient, session: str, *texts: str) -> None:
    for text in texts:
        await client.put(PARENT, text.encode(), light_queues=[lite_queue(PARENT, session)])


async def heard(receiver: AsyncLiteReceiver, count: int) -> list[tuple[str, str]]:
    """Lite topic and text of the next messages, acknowledged."""
    found: list[tuple[str, str]] = []
    while len(found) < count:
        for one in await receiver.take(1, 10):
            found.append((one.lite_topic, one.body.decode()))
            assert await one.acknowledge() is Outcome.DONE
    return found


@pytest.fixture
async def parent(client: AsyncClient) -> None:
    await client.create_lite_parent(PARENT)


@pytest.mark.usefixtures("parent")
async def test_a_receiver_has_the_sessions_that_it_is_subscribed_to(client: AsyncClient) -> None:
    await say(client, "one", "a", "b")
    await say(client, "other", "x")
    async with client.lite_receiver(PARENT, group="g") as receiver:
        await receiver.subscribe(["one", "not-there-yet"])
        assert await heard(receiver, 2) == [("one", "a"), ("one", "b")]
        waiting = asyncio.create_task(heard(receiver, 1))
        await asyncio.sleep(0)
        await say(client, "not-there-yet", "first")
        assert await waiting == [("not-there-yet", "first")]
        await receiver.subscribe("other")
        assert await heard(receiver, 1) == [("other", "x")]
        await receiver.unsubscribe("one")
        assert receiver.subscribed == ["not-there-yet", "other"]
    state = await client.describe_group("g")
    assert state.settings is not None
    assert state.settings.lite == LiteSettings(PARENT)
    assert state.settings.in_order
    assert (await client.statistics())["store.lite_clients"] == 0


@pytest.mark.usefixtures("parent")
async def test_receivers_of_a_wildcard_group_share_all_sessions(client: AsyncClient) -> None:
    await say(client, "before", "b")
    async with (
        client.lite_receiver(PARENT, group="g", wildcard=True) as first,
        client.lite_receiver(PARENT, group="g", wildcard=True) as second,
    ):
        assert await heard(first, 1) == [("before", "b")]
        found: list[str] = []

        async def work(receiver: AsyncLiteReceiver) -> None:
            async for one in receiver:
                found.append(one.lite_topic)
                one.acknowledge()

        both = [asyncio.create_task(work(each)) for each in (first, second)]
        await say(client, "new-1", "n1")
        await say(client, "new-2", "n2")
        await until(lambda: sorted(found) == ["new-1", "new-2"])
        for task in both:
            task.cancel()


@pytest.mark.usefixtures("parent")
async def test_a_receiver_that_says_how_long_messages_are_its_own_makes_the_group_too(
    client: AsyncClient,
) -> None:
    await say(client, "one", "a")
    async with client.lite_receiver(PARENT, group="g", wildcard=True, invisible_s=5) as receiver:
        assert await heard(receiver, 1) == [("one", "a")]
        tasks = {task.get_name() for task in receiver._core._tasks}
        assert "kvcq-subscribing" in tasks


@pytest.mark.usefixtures("parent")
async def test_who_has_a_message_of_a_session_is_shown(client: AsyncClient) -> None:
    await say(client, "s", "1")
    async with client.lite_receiver(PARENT, group="g") as receiver:
        await receiver.subscribe("s")
        (one,) = await receiver.take(1, 10)
        (member,) = (await client.describe_group("g")).members
        assert member.in_flight == 1
        (event,) = (await client.trace(one.message.message_id)).events
        assert event.address == member.address
        one.acknowledge()


@pytest.mark.usefixtures("parent")
async def test_the_last_subscriber_of_an_exclusive_group_has_the_session(
    client: AsyncClient,
) -> None:
    first = client.lite_receiver(PARENT, group="g", exclusive=True)
    second = client.lite_receiver(PARENT, group="g", exclusive=True)
    async with first, second:
        await first.subscribe("s")
        await say(client, "s", "1")
        assert await heard(first, 1) == [("s", "1")]
        waiting = asyncio.create_task(first.take(1, 5))
        await second.subscribe("s")
        await until(lambda: not first.subscribed)
        assert first.lost() == ["s"]
        await say(client, "s", "2")
        assert await heard(second, 1) == [("s", "2")]
        waiting.cancel()


@pytest.mark.usefixtures("parent")
async def test_a_subscriber_hears_at_once_what_it_has_lost(client: AsyncClient) -> None:
    """By the answer to its next call, whichever that is."""
    async with (
        client.lite_receiver(PARENT, group="g", exclusive=True) as first,
        client.lite_receiver(PARENT, group="g", exclusive=True) as second,
    ):
        await first.subscribe(["a", "b"])
        await second.subscribe("b")
        await first.subscribe("c")
        assert first.lost() == ["b"]
        assert first.subscribed == ["a", "c"]
        await first.subscribe("b")
        assert first.lost() == []
        assert first.subscribed == ["a", "c", "b"]


@pytest.mark.usefixtures("parent")
async def test_what_comes_for_a_receive_that_has_gone_is_given_back(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = client.lite_receiver(PARENT, group="g", wildcard=True)
    taking = asyncio.create_task(first.take(1))
    stream = client._connection.call_stream
    await until(lambda: any(call.method == "Receive" for call in stream._calls.values()))
    [receiving] = first._core._asked_s
    settle = stream._settle

    def settle_when_gone(call_id: int, outcome: Any) -> None:  # noqa: ANN401 - handed on
        monkeypatch.undo()
        receiving.cancel()
        settle(call_id, outcome)

    monkeypatch.setattr(stream, "_settle", settle_when_gone)
    async with (
        AsyncClient(client._connection.target) as other,
        other.lite_receiver(PARENT, group="g", wildcard=True) as second,
    ):
        await say(other, "s", "1")
        await asyncio.wait({receiving})
        [delivery] = await second.take(1, 10)
        assert (delivery.lite_topic, delivery.deliveries) == ("s", 1)
        delivery.acknowledge()
    taking.cancel()


@pytest.mark.usefixtures("parent")
async def test_a_subscription_begins_at_a_time(client: AsyncClient, served: Served) -> None:
    await say(client, "s", "0", "1")
    (last,) = (await client.pull(lite_queue(PARENT, "s"), 0, 1)).messages
    last_ms = last.store_time_ms
    await until(lambda: time.time_ns() // 1_000_000 > last_ms)
    await say(client, "s", "2", "3")
    since = datetime.fromtimestamp(last_ms / 1000, UTC) + timedelta(milliseconds=1)
    async with client.lite_receiver(PARENT, group="g", in_order=False) as receiver:
        await receiver.subscribe("s", start=since)
        assert await heard(receiver, 2) == [("s", "2"), ("s", "3")]
        for wrong in (datetime.now(), 1.5):  # noqa: DTZ005 - it has no zone
            with pytest.raises((ValueError, TypeError), match="start"):
                await receiver.subscribe("t", start=wrong)  # type: ignore[arg-type]

    def blocking() -> None:
        with Client(served.target) as other, other.lite_receiver(PARENT, group="h") as receiver:
            receiver.subscribe("s", start=since)
            (one,) = receiver.take(1)
            with one:
                assert one.body == b"2"

    await asyncio.to_thread(blocking)


@pytest.mark.usefixtures("parent")
async def test_where_a_subscription_begins_and_what_is_refused(client: AsyncClient) -> None:
    await say(client, "s", "0", "1", "2", "3")
    async with client.lite_receiver(PARENT, group="g", in_order=False) as receiver:
        await receiver.subscribe("s", start=-2)
        assert await heard(receiver, 2) == [("s", "2"), ("s", "3")]
        with pytest.raises(InvalidArgumentError, match=r"lite_topics\[1\]"):
            await receiver.subscribe(["fine", "not$fine"])
        with pytest.raises(ResourceExhaustedError, match="2001 lite topics are more than the 2000"):
            await receiver.subscribe([f"n{number}" for number in range(2000)])
        assert receiver.subscribed == ["s"]
    with pytest.raises(ValueError, match="tag_filter"):
        client.lite_receiver(PARENT, group="g", tag_filter="x")
    with pytest.raises(NotPossibleError, match="of 'agents' only: use lite_receiver"):
        await client.receive(PARENT, group="g")


@pytest.mark.usefixtures("parent")
@pytest.mark.parametrize("wildcard", [False, True])
async def test_a_group_is_bound_to_no_parent_that_is_none(
    client: AsyncClient, wildcard: bool
) -> None:
    async def begin(parent: str) -> None:
        async with client.lite_receiver(parent, group="g", wildcard=wildcard) as receiver:
            if wildcard:
                await receiver.take(1, 5)
            else:
                await receiver.subscribe("s")

    await client.create_topic("plain")
    with pytest.raises(NotFoundError, match="'misspelled': create it with create_lite_parent"):
        await begin("misspelled")
    with pytest.raises(InvalidArgumentError, match="not made for lite topics"):
        await begin("plain")
    await say(client, "s", "x")
    await begin(PARENT)
    await client.create_lite_parent("other")
    with pytest.raises(NotPossibleError, match=f"bound to the lite topics of '{PARENT}'"):
        await begin("other")


@pytest.mark.usefixtures("parent")
@pytest.mark.parametrize(
    ("made", "asked", "why"),
    [
        ({}, {"wildcard": True}, "neither wildcard nor exclusive, not a wildcard group"),
        ({}, {"exclusive": True}, "neither wildcard nor exclusive, not an exclusive group"),
        ({"exclusive": True}, {"wildcard": True}, "an exclusive group, not a wildcard group"),
        ({"wildcard": True}, {"exclusive": True}, "a wildcard group, not an exclusive group"),
    ],
)
async def test_a_group_of_another_kind_is_refused(
    client: AsyncClient, served: Served, made: dict[str, bool], asked: dict[str, bool], why: str
) -> None:
    """Its receivers would wait for ever, or keep what others subscribe to."""
    await client.create_group("g", in_order=True, lite=LiteSettings(PARENT, **made))
    async with client.lite_receiver(PARENT, group="g", **asked) as receiver:  # type: ignore[arg-type]
        with pytest.raises(NotPossibleError, match=f"group 'g' is {why}: use another"):
            await receiver.take(1, 10)
        with pytest.raises(NotPossibleError, match=why):
            await receiver.subscribe("s")

    def blocking() -> None:
        with (
            Client(served.target) as other,
            other.lite_receiver(PARENT, group="g", **asked) as receiver,  # type: ignore[arg-type]
            pytest.raises(NotPossibleError, match=why),
        ):
            next(receiver)

    await asyncio.to_thread(blocking)
    await say(client, "s", "x")
    async with client.lite_receiver(PARENT, group="g") as receiver:
        if not made.get("wildcard"):
            await receiver.subscribe("s")
        assert await heard(receiver, 1) == [("s", "x")]


@pytest.mark.usefixtures("parent")
async def test_lite_topics_are_listed_and_deleted(client: AsyncClient) -> None:
    for session in ("b", "a", "aa"):
        await say(client, session, "x")
    assert [name async for name in client.list_lite_topics(PARENT)] == ["a", "b", "aa"]
    assert await client.delete_lite_topics(PARENT, ["a", "never"]) == 1
    assert [name async for name in client.list_lite_topics(PARENT, "a")] == ["aa"]
    await client.create_lite_parent(PARENT, expiry_s=3600)
    assert await client.lite_expiry_s(PARENT) == 3600
    one = LiteParent(3_600_000, 2, has_more=False, clients=0)
    assert (await client.describe_topic(PARENT)).lite == one
    assert (await client.topic_queues(PARENT))[0].lite == one


@pytest.mark.usefixtures("parent")
async def test_a_server_that_forgot_the_subscriptions_is_told_again(
    client: AsyncClient, served: Served
) -> None:
    async with client.lite_receiver(PARENT, group="g") as receiver:
        await receiver.subscribe("s")
        await say(client, "s", "1")
        assert await heard(receiver, 1) == [("s", "1")]
        served.store.lite.subscriptions.forget("g")
        await say(client, "s", "2")
        assert await heard(receiver, 1) == [("s", "2")]


@pytest.mark.usefixtures("parent")
@pytest.mark.parametrize("change", ["subscribe", "unsubscribe"])
async def test_a_change_after_a_restart_tells_the_other_subscriptions_again(
    client: AsyncClient, served: Served, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvcq_client.receiving.lite._SYNC_S", 3600.0)
    async with client.lite_receiver(PARENT, group="g") as receiver:
        await receiver.subscribe(["s", "t"])
        reading = asyncio.create_task(receiver.take(1, 15))
        await until(lambda: served.serving.reads.waiting_receives == 1)
        served.store.lite.subscriptions.forget("g")
        await getattr(receiver, change)("t" if change == "unsubscribe" else "u")
        await say(client, "s", "1")
        assert [one.body for one in await reading] == [b"1"]


@pytest.mark.parametrize("name", ["", "tea 1", "a,b", "a$b", "x" * 65, "tea\n"])
def test_a_name_that_no_lite_topic_can_have_is_refused_before_a_message_is_lost(name: str) -> None:
    with pytest.raises(ValueError, match="lite_topic: "):
        lite_queue(PARENT, name)
    assert lite_queue(PARENT, "x" * 64) == f"%LMQ%${PARENT}${'x' * 64}"


async def test_the_blocking_face_does_the_same(served: Served) -> None:
    def work() -> None:
        with Client(served.target) as client:
            client.create_lite_parent(PARENT)
            client.put(PARENT, b"hello", light_queues=[lite_queue(PARENT, "s")])
            with client.lite_receiver(PARENT, group="g").subscribe("s") as receiver:
                (one,) = receiver.take(1)
                with one:
                    assert (one.lite_topic, one.body) == ("s", b"hello")
            assert list(client.list_lite_topics(PARENT)) == ["s"]

    await asyncio.to_thread(work)
