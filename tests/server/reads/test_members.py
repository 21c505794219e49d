"""server/reads/members.py: who receives, within bounds."""

from __future__ import annotations

import asyncio

import pytest

from server.reads import members
from server.reads.members import IDLE_MS, Members, Shown
from server.workers import CALLER


class Time:
    ms = 1000

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def found(time: Time) -> Members:
    CALLER.set("one")
    return Members(time)


def test_a_member_is_one_while_it_calls_and_for_a_while_after(found: Members, time: Time) -> None:
    with found.waiting("g"):
        time.ms += 10 * IDLE_MS
        assert found.of("g", {}) == [Shown("", "one", 1000, 1000, 1, 0)]
    time.ms += IDLE_MS
    assert [one.waiting for one in found.of("g", {})] == [0]
    assert found.of("h", {}) == []
    time.ms += 1
    assert found.of("g", {}) == []
    found.seen("g")
    assert [one.since_ms for one in found.of("g", {})] == [time.ms]


def test_it_has_what_its_leases_have_for_as_long(found: Members, time: Time) -> None:
    found.given("g", [1, 2])
    CALLER.set("two")
    found.given("g", [3])
    time.ms += 2 * IDLE_MS
    held = {1: 5, 2: 7, 3: 1, 4: 9}
    assert [(one.peer, one.in_flight) for one in found.of("g", held)] == [("one", 12), ("two", 1)]
    assert [one.peer for one in found.of("g", {3: 1})] == ["two"]


def test_memory_is_bounded(found: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "MEMBERS", 10)
    monkeypatch.setattr(members, "LEASES", 10)
    for number in range(100):
        CALLER.set(str(number))
        found.given("g", range(10 * number, 10 * number + 10))
    assert [one.peer for one in found.of("g", {})] == [str(number) for number in range(90, 100)]
    assert sum(one.in_flight for one in found.of("g", dict.fromkeys(range(1000), 1))) == 10


async def test_one_that_breaks_off_is_shown_while_it_has_messages(
    found: Members, time: Time
) -> None:
    """As a client that is killed does: it is not one of those that receive for another minute."""

    async def wait() -> None:
        with found.waiting("g"):
            await asyncio.Event().wait()

    found.given("g", [1])
    first, second = (asyncio.create_task(wait()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    assert [one.waiting for one in found.of("g", {})] == [1]
    time.ms += 5
    second.cancel()
    await asyncio.wait([second])
    assert found.of("g", {}) == []
    assert found.of("g", {1: 3}) == [Shown("", "one", 1000, 1005, 0, 3)]
    found.seen("g")  # it is back, or another one has the connection
    assert [one.peer for one in found.of("g", {})] == ["one"]
    found.disconnected("one")
    assert found.of("g", {}) == []


def test_connections_that_broke_off_are_bounded(
    found: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "MEMBERS", 10)
    for number in range(100):
        found.disconnected(str(number))
    assert len(found._gone) == 10
