"""A message that cannot be read holds up its queue and no other, and is skipped only when asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kvcq.engine.protocol import KvBatch
from kvcq.tables.keys import UNITS, unit_key
from kvcq.tables.values import unpack_unit
from store.errors import CorruptMessageError, DamagedQueueError
from store.groups import Outcome
from store.message import Message
from store.metadata import SharedGroup
from tests.support.fake_clock import FakeClock
from tests.support.rebuild import live_engine
from tests.support.stores import bodies, open_small

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from store.groups import Delivery
    from store.message_store import MessageStore

pytestmark = pytest.mark.damages


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[MessageStore]:
    with open_small(tmp_path / "s", clock) as opened:
        yield opened


def put(store: MessageStore, queue_id: int, *texts: str) -> None:
    store.put([Message("T", text.encode() + b" " * 99, queue_id) for text in texts])


def damage(store: MessageStore, queue_id: int, offset: int, topic: str = "T") -> None:
    """Flip a bit in the body of the record."""
    unit = unpack_unit(live_engine(store).get(UNITS, unit_key(topic, queue_id, offset)) or b"")
    segment = store.log._segments.find(unit.physical_offset)
    assert segment is not None
    segment.buffer[unit.physical_offset - segment.start_offset + 90] ^= 1


def receive(store: MessageStore, **wishes: object) -> list[Delivery]:
    return store.groups.receive("g", "T", **wishes).deliveries  # type: ignore[arg-type]


def texts(found: list[Delivery]) -> list[str]:
    return [body.decode().strip() for body in bodies([each.record for each in found])]


def test_other_queues_go_on_and_the_damage_is_told_once(
    store: MessageStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.groups.create("g")
    put(store, 0, "a", "bad", "behind")
    put(store, 1, *"xyz")
    damage(store, 0, 1)
    seen = texts(receive(store, max_messages=2)) + texts(receive(store))
    assert sorted(seen) == [*"axyz"]
    for _ in range(3):
        with pytest.raises(CorruptMessageError) as caught:
            receive(store)
        assert (caught.value.queue_id, caught.value.next_offset) == (0, 2)
    put(store, 1, "new")
    assert texts(receive(store)) == ["new"]
    assert caplog.text.count("receives nothing from this queue") == 1
    numbers = store.statistics()
    assert numbers["store.shared_damaged_met"] == 1
    assert numbers["store.shared_damaged_skipped"] == 0


def test_it_is_skipped_when_the_receiver_asks_for_it_and_told(
    store: MessageStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.groups.create("g")
    put(store, 0, "bad", "a", "worse", "b")
    damage(store, 0, 0)
    damage(store, 0, 2)
    found = receive(store, skip_damaged=True)
    found += receive(store, skip_damaged=True)
    assert texts(found) == [*"ab"]
    assert receive(store) == []
    assert caplog.text.count("skipped a message") == 2
    assert store.statistics()["store.shared_damaged_skipped"] == 2
    (row,) = store.tables.list_windows("g", None, 9)
    assert (row[2].next_offset, row[2].in_flight) == (4, 2)


def test_what_was_damaged_in_flight_holds_up_nothing_but_itself(
    store: MessageStore, clock: FakeClock
) -> None:
    store.groups.create("g", SharedGroup(invisible_ms=1000))
    put(store, 0, *"abcd")
    got = receive(store)
    store.groups.acknowledge("g", [got[0].handle])
    damage(store, 0, 1)
    clock.advance(1)
    with pytest.raises(CorruptMessageError):
        receive(store)
    assert store.groups.acknowledge("g", [got[1].handle]).outcomes == [Outcome.DONE]
    assert texts(receive(store)) == [*"cd"]
    clock.advance(1)
    damage(store, 0, 3)
    assert texts(receive(store, skip_damaged=True)) == ["c"]
    assert receive(store, skip_damaged=True) == []
    assert store.groups.acknowledge("g", [got[3].handle]).outcomes == [Outcome.NOT_IN_FLIGHT]


def test_a_unit_that_is_missing_is_skipped_once_a_rebuild_has_not_helped(
    store: MessageStore,
) -> None:
    store.groups.create("g")
    put(store, 0, *"abc")
    damage(store, 0, 0)  # nor does the log have it
    live_engine(store).write(KvBatch(deletes=[(UNITS, unit_key("T", 0, 0))]))
    with pytest.raises(DamagedQueueError) as caught:
        receive(store, skip_damaged=True)
    assert caught.value.next_offset is None
    store._services.repair.wait()
    assert texts(receive(store, skip_damaged=True)) == [*"bc"]
    assert store.statistics()["store.shared_damaged_skipped"] == 1
