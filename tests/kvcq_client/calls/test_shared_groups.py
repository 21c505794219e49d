"""The calls of shared groups, against a served store."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kvcq_client import (
    AlreadyExistsError,
    AsyncClient,
    Client,
    InvalidArgumentError,
    NotFoundError,
    NotPossibleError,
    Outcome,
    Queue,
    Received,
    SharedGroup,
    Start,
)
from kvcq_client.calls import dead_letters
from tests.support.until import until

if TYPE_CHECKING:
    from tests.support.serving import Served

pytestmark = pytest.mark.integration


async def test_each_message_is_received_once_and_is_done_when_it_is_acknowledged(
    client: AsyncClient,
) -> None:
    for number in range(5):
        await client.put("jobs", b"%d" % number, queue_id=number % 2)
    first = await client.receive("jobs", group="g", max_messages=3)
    second = await client.receive("jobs", group="g")
    assert (len(first), len(second)) == (3, 2)
    assert {one.message.body for one in first + second} == {b"%d" % each for each in range(5)}
    assert {one.deliveries for one in first + second} == {1}
    assert {one.message.queue for one in first + second} == {Queue("jobs", 0), Queue("jobs", 1)}
    assert all(one.message.queue.queue_id == one.message.queue_id for one in first + second)
    assert await client.receive("jobs", group="g") == []

    handles: list[Received | str] = [first[0], first[1].handle]
    assert await client.acknowledge("g", handles) == [Outcome.DONE, Outcome.DONE]
    assert await client.acknowledge("g", handles[:1]) == [Outcome.NOT_IN_FLIGHT]
    assert await client.acknowledge("g", []) == []


async def test_a_receive_acknowledges_the_messages_before_it(client: AsyncClient) -> None:
    for number in range(3):
        await client.put("jobs", b"%d" % number, queue_id=0)
    seen = []
    batch = await client.receive("jobs", group="g", max_messages=2)
    assert batch.outcomes == []
    while batch:
        seen += [one.message.body for one in batch]
        count = len(batch)
        batch = await client.receive("jobs", group="g", max_messages=2, acknowledge=batch)
        assert batch.outcomes == [Outcome.DONE] * count
    assert seen == [b"0", b"1", b"2"]


async def test_an_older_server_acknowledges_by_a_call_of_its_own(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.put("jobs", b"one")
    first = await client.receive("jobs", group="g")
    monkeypatch.setattr("server.reads.receives.list", lambda _: (), raising=False)
    second = await client.receive("jobs", group="g", acknowledge=first)
    assert (second, second.outcomes) == ([], [Outcome.DONE])


@pytest.mark.parametrize("turns", [0, 3])
async def test_what_comes_for_a_caller_that_has_gone_is_given_back(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    """The answer is on its way when a receive that waits is cancelled, or comes that moment."""
    await client.create_topic("jobs", 1)
    receiving = asyncio.create_task(client.receive("jobs", group="g", wait_s=20))
    stream = client._connection.call_stream
    await until(lambda: stream._calls)
    settle = stream._settle

    async def settle_later(call_id: int, outcome: Any) -> None:  # noqa: ANN401 - handed on
        for _ in range(turns):
            await asyncio.sleep(0)
        settle(call_id, outcome)

    settling: list[asyncio.Task[None]] = []

    def settle_when_gone(call_id: int, outcome: Any) -> None:  # noqa: ANN401 - as above
        monkeypatch.undo()
        receiving.cancel()
        if turns:
            settling.append(asyncio.create_task(settle_later(call_id, outcome)))
        else:
            settle(call_id, outcome)

    async with AsyncClient(client._connection.target) as other:
        monkeypatch.setattr(stream, "_settle", settle_when_gone)
        await other.put("jobs", b"one")
        await asyncio.wait({receiving})
        [received] = await other.receive("jobs", group="g", wait_s=10)
    assert receiving.cancelled()
    assert (received.message.body, received.deliveries) == (b"one", 1)


async def test_what_is_given_back_is_delivered_again_and_its_old_handle_comes_too_late(
    client: AsyncClient,
) -> None:
    await client.put("jobs", b"one")
    [received] = await client.receive("jobs", group="g", invisible_s=600)
    [kept] = await client.change_invisible("g", [received], 3600)
    assert kept is Outcome.DONE
    assert await client.give_back("g", [received], 0) == [Outcome.DONE]
    [again] = await client.receive("jobs", group="g", wait_s=5)
    assert (again.deliveries, again.message) == (2, received.message)
    assert again.handle != received.handle
    assert await client.acknowledge("g", [received, again]) == [
        Outcome.NOT_IN_FLIGHT,
        Outcome.DONE,
    ]


async def test_a_receive_waits_for_a_message(client: AsyncClient) -> None:
    await client.create_topic("jobs")
    waiting = asyncio.create_task(client.receive("jobs", group="g", wait_s=30))
    await client.put("jobs", b"late")
    [received] = await waiting
    assert received.message.body == b"late"


async def test_a_handle_of_a_deleted_light_queue_has_an_outcome_of_its_own(
    client: AsyncClient,
) -> None:
    await client.put("chat", b"hi", light_queues=["%LMQ%alice"])
    [received] = await client.receive("%LMQ%alice", group="g")
    assert received.message.queue == Queue("%LMQ%alice", 0)
    await client.delete_topic("%LMQ%alice")
    assert await client.acknowledge("g", [received]) == [Outcome.QUEUE_ENDED]


async def test_more_handles_than_one_request_takes_are_acknowledged_in_parts(
    client: AsyncClient,
) -> None:
    async with client.producer() as producer:
        for _ in range(1500):
            await producer.send("jobs", b"x")
    received: list[Received] = []
    while len(received) < 1500:
        received += await client.receive("jobs", group="g", max_messages=1024, wait_s=5)
    outcomes = await client.acknowledge("g", received)
    assert outcomes == [Outcome.DONE] * 1500


async def test_settings_are_made_changed_and_described(client: AsyncClient) -> None:
    made = await client.create_group("g", max_deliveries=3, backoff_ms=[1000, 60_000])
    assert made == SharedGroup(max_deliveries=3, backoff_ms=(1000, 60_000))
    assert await client.create_group("g", max_deliveries=3, backoff_ms=[1000, 60_000]) == made
    with pytest.raises(AlreadyExistsError):
        await client.create_group("g", max_deliveries=4)
    changed = await client.update_group("g", invisible_ms=5000, paused=True)
    assert changed == made._replace(invisible_ms=5000, paused=True)
    cleared = await client.update_group("g", backoff_ms=())
    assert cleared == changed._replace(backoff_ms=())
    found = await client.describe_group("g")
    assert (found.is_shared, found.settings, found.queues) == (True, cleared, [])


async def test_where_a_group_is_and_where_it_is_moved_to(client: AsyncClient) -> None:
    await client.create_topic("jobs", 1)
    for number in range(5):
        await client.put("jobs", b"%d" % number)
    first, second, *_ = await client.receive("jobs", group="g", max_messages=3)
    await client.acknowledge("g", [first])
    await client.give_back("g", [second], 600)
    [queue] = (await client.describe_group("g")).queues
    assert (queue.topic, queue.queue_id, queue.done_below) == ("jobs", 0, 1)
    assert (queue.next_offset, queue.max_offset) == (3, 5)
    assert (queue.in_flight, queue.waiting_again, queue.lag) == (1, 1, 4)
    assert queue.oldest_time_ms is not None

    reset = await client.reset_group("g", "jobs", Start.EARLIEST)
    assert reset.ended_in_flight >= 1
    assert await client.acknowledge("g", [second]) == [Outcome.NOT_IN_FLIGHT]
    assert len(await client.receive("jobs", group="g")) == 5
    await client.reset_group("g", "jobs", 4, queue_ids=[0])
    [last] = await client.receive("jobs", group="g")
    assert last.message.body == b"4"
    await client.reset_group("g", "jobs", "latest")
    assert await client.receive("jobs", group="g") == []


async def test_poison_is_redriven(client: AsyncClient) -> None:
    await client.create_group("g", max_deliveries=1)
    await client.put("jobs", b"poison")
    [received] = await client.receive("jobs", group="g")
    await client.give_back("g", [received], 0)
    assert await client.receive("jobs", group="g") == []
    assert (await client.describe_group("g")).dead_letters == 1
    assert (await client.redrive("g", max_messages=10)).redriven == 1
    assert (await client.describe_group("g")).dead_letters == 0
    [again] = await client.receive("jobs", group="g", wait_s=10)
    assert again.message.body == b"poison"
    assert await client.redrive("g") == (0, 0)


async def test_what_has_lost_its_topic_is_left_and_holds_up_nothing(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "_LETTERS_A_CALL", 1)
    await client.create_group("g", max_deliveries=1)
    for topic in ("gone", "jobs"):
        await client.put(topic, b"poison")
        await client.give_back("g", await client.receive(topic, group="g"), 0)
        assert await client.receive(topic, group="g") == []
    await client.delete_topic("gone")
    assert await client.redrive("g") == (1, 1)


@pytest.mark.parametrize(
    ("call", "error", "field"),
    [
        (lambda c: c.receive("jobs", group=""), InvalidArgumentError, "group"),
        (lambda c: c.receive("jobs", group="g", max_messages=1025), InvalidArgumentError, None),
        (lambda c: c.receive("jobs", group="g", invisible_s=0), InvalidArgumentError, None),
        (lambda c: c.receive("jobs", group="g", invisible_s=86_400), InvalidArgumentError, None),
        (lambda c: c.receive("nothing", group="g"), NotFoundError, None),
        (lambda c: c.acknowledge("g", ["forged"]), InvalidArgumentError, "handles[0]"),
        (lambda c: c.create_group("h", max_deliveries=0), InvalidArgumentError, None),
        (lambda c: c.update_group("none", paused=True), NotFoundError, None),
        (lambda c: c.describe_group("none"), NotFoundError, None),
        (lambda c: c.acknowledge("g", [5]), TypeError, None),
        (lambda c: c.create_group("h", backoff_ms=["x"]), TypeError, None),
        (lambda c: c.reset_group("g", "jobs", "committed"), ValueError, None),
    ],
)
async def test_what_is_wrong_is_refused_by_its_field(
    client: AsyncClient,
    call: Any,  # noqa: ANN401 - a call of the client
    error: type[Exception],
    field: str | None,
) -> None:
    await client.put("jobs", b"one")
    await client.create_group("g")
    with pytest.raises(error) as caught:
        await call(client)
    if field is not None:
        assert isinstance(caught.value, InvalidArgumentError)
        assert caught.value.field == field


async def test_a_group_that_reads_by_offsets_receives_nothing(client: AsyncClient) -> None:
    await client.put("jobs", b"one", queue_id=0)
    await client.commit_offsets("readers", {Queue("jobs", 0): 1})
    with pytest.raises(NotPossibleError):
        await client.receive("jobs", group="readers")
    found = await client.describe_group("readers")
    assert (found.is_shared, found.queues) == (False, [])


async def test_the_blocking_face_has_the_same_calls(served: Served, client: AsyncClient) -> None:
    await client.put("jobs", b"one")

    def work() -> list[Outcome]:
        with Client(served.target) as blocking:
            received = blocking.receive("jobs", group="g", wait_s=5)
            return blocking.acknowledge("g", received)

    assert await asyncio.to_thread(work) == [Outcome.DONE]
