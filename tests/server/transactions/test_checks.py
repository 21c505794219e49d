"""Producers are asked about what nobody decided; whoever was not there was not asked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from server.access import Caller
from server.errors import UnauthenticatedError
from server.rocketmq.telemetry import Outbox
from server.rocketmq.transactions import _Producer
from server.services.transactions import _Stream
from server.transactions.checks import Checks
from store.message import Message
from tests.support.fake_clock import FakeClock
from tests.support.stores import open_small
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from server.access import ResourceKind, Role
    from server.transactions import Listener
    from store.held import Check

MINUTES = 60


class Producer:
    """One that may be gone."""

    rights_looked_at = 0

    def __init__(self, *, is_there: bool = True, topic: str = "T") -> None:
        """`topic`: of what it may be asked."""
        self.is_there = is_there
        self.asked: list[Check] = []
        self._topic = topic

    def may_be_asked(self, topic: str) -> bool:
        Producer.rights_looked_at += 1
        return topic == self._topic

    async def send(self, check: Check) -> None:
        if not self.is_there:
            raise ConnectionError("gone")
        self.asked.append(check)


async def test_those_that_nobody_may_be_asked_about_keep_no_others_waiting(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_small(tmp_path / "s", clock) as store:
        for _ in range(100):
            store.halves.begin(Message("other", b"x"), "g")
        clock.advance(60)
        one = store.halves.begin(Message("T", b"x"), "g")
        clock.advance(60)
        checks = Checks(store.halves)
        producer = Producer()
        checks._listeners["g"] = {1: producer}  # no look but these
        for _ in range(3):
            await checks.look("g")
        assert [check.transaction_id for check in producer.asked] == [one]
        clock.advance(60)
        checks._listeners["g"][2] = back = Producer(topic="other")
        for _ in range(4):
            await checks.look("g")
        assert len(back.asked) == 100
        assert len(producer.asked) == 2
        checks.close()


class _DeletedUser(Caller):
    """Of a stream that was opened before: it stays open."""

    def check(self, role: Role | None, kind: ResourceKind, name: str) -> None:
        raise UnauthenticatedError("deleted, or has a new secret")

    def check_each(self, role: Role | None, kind: ResourceKind, names: Iterable[str]) -> None:
        raise UnauthenticatedError("deleted, or has a new secret")


@pytest.mark.parametrize(
    "listener",
    [_Stream(_DeletedUser()), _Producer(_DeletedUser(), Outbox())],
    ids=["kvcq", "RocketMQ"],
)
async def test_a_producer_whose_user_was_deleted_keeps_nobody_from_being_asked(
    tmp_path: Path, listener: Listener
) -> None:
    clock = FakeClock()
    with open_small(tmp_path / "s", clock) as store:
        for _ in range(4):
            store.halves.begin(Message("T", b"x"), "g")
        clock.advance(60)
        checks = Checks(store.halves)
        producer = Producer()
        removes = [checks.listen("g", each) for each in (listener, producer)]
        await until(lambda: [each.checks for each in store.halves.list()[0]] == [1] * 4)
        assert len(producer.asked) == 4
        for remove in removes:
            remove()
        checks.close()


@pytest.mark.parametrize("is_listed", [False, True])
async def test_an_hour_without_a_producer_keeps_a_half_and_counts_no_check(
    tmp_path: Path, *, is_listed: bool
) -> None:
    """`is_listed`: there is a stream whose producer is gone, which nobody has noticed."""
    clock = FakeClock()
    with open_small(tmp_path / "s", clock) as store:
        one = store.halves.begin(Message("T", b"x"), "g")
        checks = Checks(store.halves)
        gone = Producer(is_there=False)
        remove = checks.listen("g", gone) if is_listed else lambda: None
        for _ in range(MINUTES):
            clock.advance(60)
            await checks.look("g")
        (half,) = store.halves.list()[0]
        assert (half.transaction_id, half.checks) == (one, 0)
        assert half.next_check_ms is not None
        assert half.next_check_ms <= clock.now_ms(), "the next one who is there is asked at once"
        assert store.statistics()["store.transaction_checks_sent"] == 0
        remove()
        back = Producer()
        remove = checks.listen("g", back)
        await until(lambda: store.halves.list()[0][0].checks == 1)
        assert [check.transaction_id for check in back.asked] == [one]
        store.halves.end(one, commit=True)
        store.wait_visible()
        assert len(store.pull("T", 0, 0).records) == 1
        remove()
        checks.close()


@pytest.mark.parametrize("topic", ["T", "another"])
async def test_ten_thousand_producers_do_not_hold_the_loop_while_some_are_asked(
    tmp_path: Path, topic: str
) -> None:
    """`topic`: of what all but one of them may be asked."""
    clock = FakeClock()
    with open_small(tmp_path / "s", clock) as store:
        for _ in range(64):
            store.halves.begin(Message("T", b"x"), "g")
        clock.advance(3600)
        checks = Checks(store.halves)
        producers = [Producer(topic=topic) for _ in range(10_000)] + [Producer()]
        removes = [checks.listen("g", each) for each in producers]
        most, seen = 0, Producer.rights_looked_at
        while sum(len(each.asked) for each in producers[:64] + producers[-1:]) < 64:
            await asyncio.sleep(0)
            most, seen = max(most, Producer.rights_looked_at - seen), Producer.rights_looked_at
        assert most <= 64 * 16
        asked = [len(each.asked) for each in producers if each.asked]
        assert asked == ([1] * 64 if topic == "T" else [64])
        for remove in removes:
            remove()
        checks.close()
