"""Damage to what is held: the rest is kept when the segments go, and the segments go."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from kvcq.engine.protocol import KvBatch
from kvcq.tables.keys import UNITS, unit_key
from store.errors import StoreBusyError
from store.format import unpack_record
from store.held import Decide
from store.message import Message
from store.metadata import SharedGroup
from store.state import HALVES_TOPIC, TIMER_TOPIC
from tests.store.groups.test_damage import damage
from tests.store.groups.test_dead_letters import DLQ, bury
from tests.store.groups.test_keeping import DAYS_30, HOUR, drop, fill
from tests.support.rebuild import live_engine
from tests.support.stores import open_small

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from store.message_store import MessageStore
    from tests.support.fake_clock import FakeClock

pytestmark = pytest.mark.damages


class Held(NamedTuple):
    topic: str  # where it waits
    hold: Callable[[MessageStore, FakeClock, Sequence[Message]], object]
    kept: Callable[[MessageStore], list[bytes]]
    end: Callable[[MessageStore, int, int], object]  # the first <= n < end
    lost: str  # how many were, among the statistics


def _delay(store: MessageStore, clock: FakeClock, messages: Sequence[Message]) -> None:
    due_ms = clock.now_ms() + round(100 * HOUR * 1000)
    store.timers.put(messages, [due_ms] * len(messages))


def _delayed(store: MessageStore) -> list[bytes]:
    return [bytes(each.message.body) for each in store.timers.page().found]


def _recall(store: MessageStore, first: int, end: int) -> None:
    for each in store.timers.page().found[first:end]:
        store.timers.recall("T", [each.handle])


def _begin(store: MessageStore, clock: FakeClock, messages: Sequence[Message]) -> None:
    for message in messages:
        store.halves.begin(message, "g")
    clock.advance(6)


def _begun(store: MessageStore) -> list[bytes]:
    found = store.halves.due("g")
    return [bytes(each.message.body) for each in found]


def _roll_back(store: MessageStore, first: int, end: int) -> None:
    for each in store.halves.list()[0][first:end]:
        store.halves.end(each.transaction_id, commit=False)


def _bury(store: MessageStore, clock: FakeClock, messages: Sequence[Message]) -> None:
    store.put(messages)
    bury(store, clock)


def _letters(store: MessageStore) -> list[bytes]:
    found = store.groups.list_dead_letters("g")
    return [bytes(unpack_record(each.record).body) for each in found]


def _delete(store: MessageStore, first: int, end: int) -> None:
    if first < end:
        store.groups.delete_dead_letters("g", range(first, end))


KINDS = [
    pytest.param(Held(TIMER_TOPIC, _delay, _delayed, _recall, "store.timers_lost"), id="timers"),
    pytest.param(
        Held(HALVES_TOPIC, _begin, _begun, _roll_back, "store.transactions_lost"), id="halves"
    ),
    pytest.param(Held(DLQ, _bury, _letters, _delete, "store.dead_letters_given_up"), id="letters"),
]


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[MessageStore]:
    with open_small(tmp_path / "store", clock, reserved_hours=1) as opened:
        opened.timers.firing.stop()
        yield opened


def messages(*numbers: int) -> list[Message]:
    return [Message("T", body, 1) for body in bodies(*numbers)]


def bodies(*numbers: int) -> list[bytes]:
    return [b"%d" % number * 99 for number in numbers]


@pytest.mark.parametrize("held", KINDS)
def test_a_damaged_record_takes_no_other_with_it(
    store: MessageStore, clock: FakeClock, held: Held
) -> None:
    held.hold(store, clock, messages(*range(5)))
    store.wait_visible()
    damage(store, 0, 2, held.topic)
    fill(store, 2)
    clock.advance(2 * HOUR)
    assert drop(store) > 0
    store.wait_visible()
    assert held.kept(store) == bodies(0, 1, 3, 4)
    clock.advance(100 * HOUR)
    store.timers.firing.fire()
    assert store.statistics()[held.lost] == 1


@pytest.mark.parametrize("missing", [2, 4])
@pytest.mark.parametrize("held", KINDS)
def test_a_unit_that_a_rebuild_may_find_is_waited_for(
    store: MessageStore,
    clock: FakeClock,
    held: Held,
    missing: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first, or the last that waits in the segment that is to go."""
    held.hold(store, clock, messages(*range(5)))
    held.end(store, 0, missing if missing < 4 else 0)
    store.wait_visible()
    fill(store, 2)
    held.hold(store, clock, messages(5))
    fill(store)
    store.wait_visible()
    live_engine(store).write(KvBatch(deletes=[(UNITS, unit_key(held.topic, 0, missing))]))
    clock.advance(2 * HOUR)
    repair = store._services.repair
    with monkeypatch.context() as patched:
        patched.setattr(repair, "_begin", lambda _: False)  # as while another queue is repaired
        assert drop(store) == 0
    dropped = drop(store)
    repair.wait()
    assert dropped + drop(store) > 0
    store.wait_visible()
    assert held.kept(store) == bodies(*range(missing if missing < 4 else 0, 6))


def test_a_half_whose_unit_is_missing_refuses_no_other_decision(
    store: MessageStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    _begin(store, clock, messages(*range(3)))
    store.wait_visible()
    repair = store._services.repair
    calls = [Decide(each.transaction_id, commit=True) for each in store.halves.list()[0]]
    live_engine(store).write(KvBatch(deletes=[(UNITS, unit_key(HALVES_TOPIC, 0, 1))]))
    with monkeypatch.context() as patched:
        patched.setattr(repair, "_begin", lambda _: False)  # as while another queue is repaired
        answers = store.halves.decide(calls).answers
    assert isinstance(answers[1], StoreBusyError)
    assert [answers[0], answers[2]] == [calls[0].transaction_id, calls[2].transaction_id]
    store.halves.decide(calls)
    repair.wait()
    assert store.halves.decide(calls).answers == [each.transaction_id for each in calls]


def test_a_damaged_letter_does_not_keep_others_beyond_their_time(
    store: MessageStore, clock: FakeClock
) -> None:
    _bury(store, clock, messages(*range(5)))
    store.groups.create("h", SharedGroup(max_deliveries=1))
    store.groups.receive("h", "T", invisible_ms=1)
    clock.advance(0.001)
    store.groups.receive("h", "T")
    store.wait_visible()
    assert store.groups.dead_letters("h") == 5
    damage(store, 0, 2, DLQ)
    clock.advance(DAYS_30 + HOUR)
    store.groups.keeping.look()
    assert store.groups.dead_letters("h") == 0
    assert store.groups.dead_letters("g") == 1, "it can be deleted, or goes with its segment"
