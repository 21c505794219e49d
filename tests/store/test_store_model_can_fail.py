"""Planted faults: the model and the comparison with the log find each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import kvcq.consume_queue_store
from kvcq.consume_queue_store import KvConsumeQueueStore
from kvcq.engine.protocol import KvBatch
from kvcq.tables.dispatch_batch import build_batch
from kvcq.tables.keys import BOUNDS, DISPATCHED_KEY, INDEX, UNITS, pack_i64, topic_range, unit_key
from kvcq.tables.min_offsets import MinOffsets
from kvcq.tables.values import pack_max
from store.message import Message
from store.topics.table import Topics
from tests.store.test_store_model import StoreMachine
from tests.support.rebuild import differences, live_engine
from tests.support.stores import open_small

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from store.consume_queue import DispatchRequest


def tail_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(requests: Sequence[DispatchRequest], end_offset: int) -> KvBatch:
        return build_batch(requests[:-1] if len(requests) > 3 else requests, end_offset)

    monkeypatch.setattr(kvcq.consume_queue_store, "build_batch", broken)


def light_offset_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    load = Topics.load

    def broken(
        self: Topics, queues: Sequence[tuple[str, int]], light: Sequence[str], log_end: int
    ) -> list[int]:
        loaded = load(self, queues, light, log_end)
        of_light = [max(0, offset - 1) for offset in loaded[len(queues) :]]
        return [*loaded[: len(queues)], *of_light]

    monkeypatch.setattr(Topics, "load", broken)


def stale_min(monkeypatch: pytest.MonkeyPatch) -> None:
    get = MinOffsets.get

    def broken(
        self: MinOffsets, topic: str, queue_id: int, max_offset: int, last: int, log_start: int
    ) -> int:
        return get(self, topic, queue_id, max_offset, last, log_start - 8192)

    monkeypatch.setattr(MinOffsets, "get", broken)


def unit_left(monkeypatch: pytest.MonkeyPatch) -> None:
    delete = KvConsumeQueueStore.delete_topic

    def broken(self: KvConsumeQueueStore, topic: str, sequence: int) -> None:
        kept = self._engine.scan(UNITS, *topic_range(topic))
        delete(self, topic, sequence)
        self._engine.write(KvBatch(puts={UNITS: kept}))

    monkeypatch.setattr(KvConsumeQueueStore, "delete_topic", broken)


@pytest.fixture
def machine() -> Iterator[StoreMachine]:
    """Steps by hand: random ones would find the same, later."""
    made = StoreMachine()
    made.begin()
    yield made
    made.teardown()


def test_p2_the_model_finds_a_dropped_tail(
    machine: StoreMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    tail_dropped(monkeypatch)
    machine.put([Message("A", b"x")] * 4)
    with pytest.raises(AssertionError):
        machine.queues_hold_what_was_put()


def test_p10_the_model_finds_a_light_queue_offset_given_out_twice(
    machine: StoreMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    light_offset_twice(monkeypatch)
    message = Message("A", b"x", light_queues=("%LMQ%x",))
    machine.put([message])
    machine.reopen()
    with pytest.raises(AssertionError):
        machine.put([message])


def test_p9_the_model_finds_a_unit_left_by_a_deletion(
    machine: StoreMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit_left(monkeypatch)
    machine.put([Message("A", b"x")])
    machine.delete("A")
    with pytest.raises(AssertionError):
        machine.database_is_what_the_log_makes_it()


def test_p4_the_model_finds_a_stale_min(
    machine: StoreMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(20):
        machine.put([Message("A", b"x" * 900)])
    stale_min(monkeypatch)
    machine.time_passes(10_000)
    machine.queues_hold_what_was_put()
    machine.expire()
    assert machine.model.log_start
    with pytest.raises(AssertionError):
        machine.queues_hold_what_was_put()


@pytest.mark.parametrize(
    "batch",
    [
        KvBatch(deletes=[(UNITS, unit_key("A", 0, 1))]),
        KvBatch(puts={UNITS: [(unit_key("A", 0, 1), bytes(7) + b"\x01" * 25)]}),
        KvBatch(puts={UNITS: [(unit_key("A", 1, 0), bytes(8) + b"\x00\x00\x00\x01" * 6)]}),
        KvBatch(puts={BOUNDS: [(DISPATCHED_KEY, pack_i64(10))]}),
        KvBatch(
            puts={BOUNDS: [(b"\x00\x00\x00\x01\x01A\x01max\x01\x00\x00\x00\x00", pack_max(0, 0))]}
        ),
        KvBatch(delete_ranges=[(INDEX, b"", b"\xff")]),
    ],
)
def test_p3_the_comparison_finds(tmp_path: Path, batch: KvBatch) -> None:
    with open_small(tmp_path / "store") as store:
        store.put([Message("A", b"x", keys=("k",))] * 3)
        assert differences(store) == []
        live_engine(store).write(batch)
        assert differences(store) != []
