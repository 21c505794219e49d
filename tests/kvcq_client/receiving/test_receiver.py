"""Receivers of a shared group, against a served store."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

from kvcq_client import (
    AsyncClient,
    Client,
    ClosedError,
    Delivery,
    NotFoundError,
    NotPossibleError,
    Outcome,
    Queue,
    Received,
)
from store.groups import SharedGroups
from tests.support.until import LIMIT_S, until

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.support.cut_line import CutLine
    from tests.support.serving import Served

pytestmark = pytest.mark.integration


async def put(client: AsyncClient, count: int, topic: str = "jobs") -> None:
    async with client.producer() as producer:
        for number in range(count):
            await producer.send(topic, b"%d" % number)


def bodies(deliveries: Iterable[Delivery]) -> list[int]:
    return sorted(int(delivery.body) for delivery in deliveries)


async def test_members_share_the_messages_and_what_is_acknowledged_does_not_come_back(
    client: AsyncClient,
) -> None:
    await put(client, 200)
    found: list[Delivery] = []

    async def work() -> None:
        async with client.receiver("jobs", group="g") as receiver:
            async for delivery in receiver:
                found.append(delivery)
                assert await delivery.acknowledge() is Outcome.DONE
                if len(found) >= 200:
                    return

    first = asyncio.create_task(work())
    second = asyncio.create_task(work())
    await asyncio.wait((first, second), return_when=asyncio.FIRST_COMPLETED)
    for task in (first, second):
        task.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    assert bodies(found) == list(range(200))
    assert {delivery.deliveries for delivery in found} == {1}
    assert await client.receive("jobs", group="g") == []


async def test_acknowledgements_are_joined_into_few_calls(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(client, 300)
    calls: list[int] = []
    acknowledge = client.acknowledge

    async def counted(
        group: str,
        deliveries: Sequence[Received | str],
        **rest: Any,  # noqa: ANN401 - handed on
    ) -> list[Outcome]:
        calls.append(len(deliveries))
        return await acknowledge(group, deliveries, **rest)

    monkeypatch.setattr(client, "acknowledge", counted)
    async with client.receiver("jobs", group="g") as receiver:
        taken = await receiver.take(300)
        settlements = [delivery.acknowledge() for delivery in taken]
        assert [await each for each in settlements] == [Outcome.DONE] * 300
    assert sum(calls) == 300
    assert len(calls) < 10


async def test_a_slow_reader_leaves_the_rest_to_the_others(client: AsyncClient) -> None:
    await put(client, 50)
    async with client.receiver("jobs", group="g") as slow:
        [held] = await slow.take(1)
        # One that it waited for, and one more as it was that quick.
        rest: list[Received] = []
        while len(rest) < 48:
            rest += await client.receive("jobs", group="g", wait_s=5)
        assert held.deliveries == 1


@pytest.mark.parametrize("most", [0, 3])
async def test_no_more_is_received_ahead_than_the_settings_allow(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    await put(client, 100)
    asked: list[int] = []
    receive = client.receive

    async def counted(topic: str, **rest: Any) -> list[Received]:  # noqa: ANN401 - handed on
        asked.append(rest["max_messages"])
        return await receive(topic, **rest)

    monkeypatch.setattr(client, "receive", counted)
    async with client.receiver("jobs", group="g", prefetch_messages=most) as receiver:
        for _ in range(100):
            [delivery] = await receiver.take(1)
            delivery.acknowledge()
    assert max(asked) <= most + 1


async def test_no_more_bytes_are_received_ahead_than_the_settings_allow(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(8):
        await client.put("jobs", bytes(5000))
    asked: list[int] = []
    receive = client.receive

    async def counted(topic: str, **rest: Any) -> list[Received]:  # noqa: ANN401 - handed on
        asked.append(rest["max_bytes"])
        return await receive(topic, **rest)

    monkeypatch.setattr(client, "receive", counted)
    async with client.receiver("jobs", group="g", prefetch_bytes=12_000) as receiver:
        for _ in range(8):
            [delivery] = await receiver.take(1)
            delivery.acknowledge()
    assert max(asked) == 12_000
    assert min(asked) < 12_000


async def test_a_block_renews_its_delivery_and_acknowledges_it(client: AsyncClient) -> None:
    await put(client, 1)
    async with client.receiver("jobs", group="g", invisible_s=1.0) as receiver:
        [delivery] = await receiver.take(1)
        ends_s = delivery.until_s
        with delivery:
            await until(lambda: delivery.until_s > ends_s + 1.0)
            assert await client.receive("jobs", group="g") == []
        assert await delivery.acknowledge() is Outcome.DONE
    assert await client.receive("jobs", group="g", wait_s=1) == []


async def test_what_is_not_renewed_comes_back_and_is_settled_too_late(
    client: AsyncClient,
) -> None:
    await put(client, 1)
    async with client.receiver("jobs", group="g", invisible_s=60) as receiver:
        [delivery] = await receiver.take(1)
        assert await delivery.hold(0.2) is Outcome.DONE
        [again] = await receiver.take(1)
        await until(lambda: delivery.is_over)
        assert (again.deliveries, again.message) == (2, delivery.message)
        assert await delivery.acknowledge() is Outcome.NOT_IN_FLIGHT
        assert await again.acknowledge() is Outcome.DONE


async def test_a_delivery_is_held_for_as_long_as_it_is_told(client: AsyncClient) -> None:
    await put(client, 1)
    async with client.receiver("jobs", group="g", invisible_s=60) as receiver:
        [delivery] = await receiver.take(1)
        held_s = monotonic()
        assert await delivery.hold(600) is Outcome.DONE
        assert delivery.until_s >= held_s + 600


async def test_the_first_of_acknowledging_and_giving_back_counts(client: AsyncClient) -> None:
    await put(client, 1)
    async with client.receiver("jobs", group="g") as receiver:
        [delivery] = await receiver.take(1)
        given = delivery.give_back(0)
        assert delivery.acknowledge() is given
        assert await given is Outcome.DONE
        [again] = await receiver.take(1)
        assert again.deliveries == 2


async def test_closing_gives_back_what_was_received_ahead_and_what_is_not_settled(
    client: AsyncClient,
) -> None:
    await put(client, 100)
    async with client.receiver("jobs", group="g") as receiver:
        done = await receiver.take(40)
        for delivery in done:
            delivery.acknowledge()
        [left] = await receiver.take(1)
    with pytest.raises(ClosedError):
        await receiver.take(1)
    assert [each async for each in receiver] == []
    found: list[Received] = []
    while len(found) < 60:
        found += await client.receive("jobs", group="g", max_messages=100, wait_s=5)
    deliveries = {int(one.message.body): one.deliveries for one in found}
    # What waited here was not begun, so that delivery does not count.
    assert deliveries == {body: 1 + (body == int(left.body)) for body in deliveries}
    assert int(left.body) in deliveries


async def test_what_cannot_be_read_is_skipped_when_the_receiver_says_so(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    given = SharedGroups.receive

    def receive(self: SharedGroups, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        asked.append(kwargs["skip_damaged"])
        return given(self, *args, **kwargs)

    monkeypatch.setattr(SharedGroups, "receive", receive)
    await put(client, 1)
    assert await client.receive("jobs", group="a", skip_damaged=True)
    async with client.receiver("jobs", group="b", skip_damaged=True) as receiver:
        await receiver.take(1)
    assert set(asked) == {True}


async def test_closing_ends_the_readers_that_wait(client: AsyncClient) -> None:
    await client.create_topic("jobs")
    receiver = client.receiver("jobs", group="g")

    async def read() -> list[Delivery]:
        return [each async for each in receiver]

    waiting = [asyncio.create_task(read()) for _ in range(3)]
    await asyncio.sleep(0)
    await receiver.close()
    assert await asyncio.gather(*waiting) == [[], [], []]


async def test_several_topics_and_light_queues_that_have_no_message_yet(
    client: AsyncClient,
) -> None:
    await put(client, 10, "a")
    await put(client, 10, "b")
    async with client.receiver(["a", "b", "%LMQ%later"], group="g") as receiver:
        taken = await receiver.take(20)
        assert bodies(taken) == sorted([*range(10)] * 2)
        for delivery in taken:
            delivery.acknowledge()
        await client.put("a", b"20", light_queues=["%LMQ%later"])
        both = await receiver.take(2)
        assert {one.message.queue.topic for one in both} == {"a", "%LMQ%later"}


async def test_it_continues_after_a_lost_connection(served: Served, line: CutLine) -> None:
    async with AsyncClient(line.target, timeout_s=10) as client:
        await put(client, 60)
        found: set[int] = set()
        async with client.receiver("jobs", group="g", invisible_s=1.0) as receiver:
            while len(found) < 60:
                [delivery] = await receiver.take(1)
                found.add(int(delivery.body))
                delivery.acknowledge()
                if len(found) in (10, 30):
                    line.cut()
        assert found == set(range(60))


async def test_errors_of_a_topic_are_raised_and_the_others_are_still_received(
    client: AsyncClient,
) -> None:
    await put(client, 3)
    async with client.receiver(["nothing", "jobs"], group="g") as receiver:
        found: list[Delivery] = []
        errors = 0
        while len(found) < 3:
            try:
                found += await receiver.take(1)
            except NotFoundError:
                errors += 1
        assert bodies(found) == [0, 1, 2]
        assert errors


async def test_what_was_taken_before_an_error_is_returned(client: AsyncClient) -> None:
    """Also when the error comes while it waits for more."""
    await put(client, 1)
    await client.create_topic("other")
    async with client.receiver(["jobs", "other"], group="g") as receiver:
        taking = asyncio.create_task(receiver.take(2))
        await until(lambda: receiver._core._waiters and receiver._core._count == 1)
        await client.delete_topic("other")
        assert bodies(await taking) == [0]
        with pytest.raises(NotFoundError):
            await receiver.take(1)


async def test_what_a_cancelled_reader_had_taken_is_given_back(client: AsyncClient) -> None:
    await put(client, 1)
    async with client.receiver("jobs", group="g") as receiver:
        taking = asyncio.create_task(receiver.take(2))
        await until(lambda: receiver._core._waiters and receiver._core._count == 1)
        taking.cancel()
        await asyncio.wait({taking})
        async with asyncio.timeout(LIMIT_S):
            [delivery] = await receiver.take(1)
        assert delivery.deliveries == 1


async def test_a_group_that_reads_by_offsets_is_refused(client: AsyncClient) -> None:
    await client.put("jobs", b"one", queue_id=0)
    await client.commit_offsets("readers", {Queue("jobs", 0): 1})
    async with client.receiver("jobs", group="readers") as receiver:
        with pytest.raises(NotPossibleError):
            await receiver.take(1)


async def test_a_group_says_how_long_its_messages_are_invisible(client: AsyncClient) -> None:
    await client.create_group("g", invisible_ms=600_000)
    await put(client, 1)
    async with client.receiver("jobs", group="g") as receiver:
        [delivery] = await receiver.take(1)
        left_s = delivery.until_s - asyncio.get_running_loop().time()
        assert 500 < left_s <= 600


@pytest.mark.parametrize(
    ("topics", "settings", "field"),
    [
        ("jobs", {}, "group: '' is not the name"),
        ("jobs", {"group": 5}, "group"),
        ("jobs", {"group": "g", "reader_group": "g"}, "reader_group"),
        ("jobs", {"group": "g", "invisible_s": 0}, "invisible_s"),
        ("jobs", {"group": "g", "prefetch_messages": -1}, "prefetch_messages"),
        ("jobs", {"group": "g", "renew_s": "long"}, "renew_s"),
        ((), {"group": "g"}, "topics"),
        (5, {"group": "g"}, "topics"),
        ([b"jobs"], {"group": "g"}, "topics"),
    ],
)
async def test_wrong_settings_are_refused_by_name(
    topics: Any,  # noqa: ANN401 - of a wrong type, too
    settings: dict[str, Any],
    field: str,
) -> None:
    async with AsyncClient("127.0.0.1:1") as client:
        with pytest.raises((TypeError, ValueError), match=field):
            client.receiver(topics, **settings)


async def test_the_blocking_receiver_is_read_by_many_threads(
    served: Served, client: AsyncClient
) -> None:
    await put(client, 300)

    def work() -> list[int]:
        found: list[Delivery] = []
        with Client(served.target) as blocking:
            receiver = blocking.receiver("jobs", group="g")

            def read() -> None:
                for delivery in receiver:
                    found.append(delivery)
                    if delivery.acknowledge().result(10) is not Outcome.DONE:
                        raise AssertionError
                    if len(found) == 300:
                        receiver.close()

            with ThreadPoolExecutor(4) as threads:
                for ended in [threads.submit(read) for _ in range(4)]:
                    ended.result()
        return bodies(found)

    assert await asyncio.to_thread(work) == list(range(300))


async def test_a_reader_that_never_waits_receives_all_the_same(
    served: Served, client: AsyncClient
) -> None:
    await put(client, 2)
    async with client.receiver("jobs", group="g") as receiver:
        # Without a sleep: the call itself lets the event loop run.
        while not (found := await receiver.take(5, timeout_s=0)):
            pass
        assert await found[0].acknowledge() is Outcome.DONE

    def poll() -> list[Delivery]:
        with Client(served.target) as blocking, blocking.receiver("jobs", group="h") as receiver:
            while not (found := receiver.take(5, timeout_s=0)):
                pass
            return found

    assert await asyncio.wait_for(asyncio.to_thread(poll), 60)


async def test_a_stopped_receiver_gives_back_what_it_received_ahead_and_no_more(
    client: AsyncClient,
) -> None:
    await put(client, 60)
    async with client.receiver("jobs", group="g") as receiver:
        held = await receiver.take(20)
        await until(lambda: len(receiver._core._ready) > 5)
        await receiver.stop()
        with pytest.raises(ClosedError):
            await receiver.take(1)
        async with client.receiver("jobs", group="g") as other:
            found = await other.take(40)
            assert bodies([*held, *found]) == list(range(60))
            assert {one.deliveries for one in found} == {1}
            for one in (*held, *found):
                assert await one.acknowledge() is Outcome.DONE


async def test_closing_does_not_wait_for_the_end_of_a_lease_with_the_server_away(
    client: AsyncClient, line: CutLine, caplog: pytest.LogCaptureFixture
) -> None:
    await put(client, 1)
    async with AsyncClient(line.target, timeout_s=0.5) as far:
        receiver = far.receiver("jobs", group="g", invisible_s=3600)
        (held,) = await receiver.take(1, timeout_s=30)
        line.stop_accepting()
        line.cut()
        acknowledged = held.acknowledge()
        await asyncio.wait_for(receiver.close(), 60)
        with pytest.raises(ClosedError):
            await acknowledged
    assert "the server did not answer within 0.5 s" in caplog.text
