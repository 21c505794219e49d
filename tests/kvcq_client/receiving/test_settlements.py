"""Which settlements wait for a receive that takes them along, and which are sent at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest
import pytest_asyncio

from kvcq_client import Delivery, Outcome, UnavailableError
from kvcq_client.receiving import settlements as module
from kvcq_client.receiving.settlements import Settlements, Told

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from kvcq_client.receiving.settlements import Part

ACKNOWLEDGE = Told("acknowledge")


class Server:
    """Stands in for the connection and its calls; `sent` has what was acknowledged by each call."""

    timeout_s = 1.0

    def __init__(self) -> None:
        self.sent: list[list[Any]] = []
        self.is_receive_near = True
        self.error: UnavailableError | None = None

    def check_open(self) -> None:
        pass

    async def acknowledge(
        self, group: str, deliveries: Sequence[Any], *, timeout_s: float
    ) -> list[Outcome]:
        del group, timeout_s
        self.sent.append(list(deliveries))
        if self.error is not None:
            raise self.error
        return [Outcome.DONE] * len(deliveries)


class _Settles:
    renew_s = 1.0


def delivery(name: str) -> Delivery:
    return Delivery(cast("Any", name), 1e9, cast("Any", _Settles()))


def names(part: Part) -> list[str]:
    return [str(one.received) for one, _ in part]


@pytest.fixture
def server() -> Server:
    return Server()


@pytest_asyncio.fixture
async def settlements(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Settlements]:
    monkeypatch.setattr(module, "ALONE_S", 3600.0)
    made = Settlements(
        cast("Any", server),
        cast("Any", server),
        "g",
        lambda _: None,
        lambda: server.is_receive_near,
    )
    running = asyncio.create_task(made.run())
    yield made
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_what_may_wait_goes_with_the_receive(
    server: Server, settlements: Settlements
) -> None:
    first = settlements.add(ACKNOWLEDGE, delivery("a"), may_wait=True)
    await turns()
    assert not server.sent
    part = settlements.take()
    assert names(part) == ["a"]
    settlements.taken(part, [Outcome.NOT_IN_FLIGHT])
    assert await first is Outcome.NOT_IN_FLIGHT
    await settlements.flush()
    assert not server.sent


async def test_what_is_waited_for_is_sent_at_once_and_takes_all_along(
    server: Server, settlements: Settlements
) -> None:
    waits = settlements.add(ACKNOWLEDGE, delivery("a"), may_wait=True)
    await turns()
    assert await settlements.add(ACKNOWLEDGE, delivery("b")) is Outcome.DONE
    assert await waits is Outcome.DONE
    assert server.sent == [["a", "b"]]


async def test_asking_for_the_outcome_ends_the_wait(
    server: Server, settlements: Settlements
) -> None:
    waits = settlements.add(ACKNOWLEDGE, delivery("a"), may_wait=True)
    await turns()
    settlements.hurry()
    assert await waits is Outcome.DONE
    assert server.sent == [["a"]]


async def test_nothing_waits_while_all_receives_wait_for_messages(
    server: Server, settlements: Settlements
) -> None:
    waits = settlements.add(ACKNOWLEDGE, delivery("a"), may_wait=True)
    await turns()
    server.is_receive_near = False
    settlements.wake_if_waiting()
    assert await waits is Outcome.DONE
    assert await settlements.add(ACKNOWLEDGE, delivery("b"), may_wait=True) is Outcome.DONE
    assert server.sent == [["a"], ["b"]]


async def test_it_is_sent_alone_when_no_receive_comes(
    server: Server, settlements: Settlements, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ALONE_S", 0.001)
    waits = settlements.add(ACKNOWLEDGE, delivery("a"), may_wait=True)
    assert await asyncio.wait_for(asyncio.wrap_future(waits), 30) is Outcome.DONE
    assert server.sent == [["a"]]


async def test_a_receive_that_fails_leaves_them_to_be_sent_alone(
    server: Server, settlements: Settlements
) -> None:
    waits = settlements.add(ACKNOWLEDGE, delivery("a"), may_wait=True)
    part = settlements.take()
    await turns()
    assert not server.sent
    settlements.put_back(part)
    assert await waits is Outcome.DONE
    assert server.sent == [["a"]]


async def test_a_flush_waits_for_what_a_receive_took(
    server: Server, settlements: Settlements
) -> None:
    waits = settlements.add(ACKNOWLEDGE, delivery("a"), may_wait=True)
    part = settlements.take()
    flushing = asyncio.create_task(settlements.flush())
    await turns()
    assert not flushing.done()
    settlements.taken(part, [Outcome.DONE])
    await flushing
    assert waits.done()
    assert not server.sent


async def test_only_acknowledgements_go_with_a_receive_and_others_keep_their_order(
    server: Server, settlements: Settlements
) -> None:
    del server
    deliveries = [delivery(name) for name in "abc"]
    for told, one in zip(
        (Told("hold", 1.0), ACKNOWLEDGE, Told("hold", 2.0)), deliveries, strict=True
    ):
        settlements.add(told, one, may_wait=True)
    assert names(settlements.take()) == ["b"]
    assert [told.seconds for told, _, _ in settlements._waiting] == [1.0, 2.0]
    settlements._waiting.clear()


async def test_an_error_of_the_call_is_that_of_each(
    server: Server, settlements: Settlements
) -> None:
    server.error = UnavailableError("away")
    first = settlements.add(ACKNOWLEDGE, delivery("a"))
    with pytest.raises(UnavailableError, match="away"):
        await first
