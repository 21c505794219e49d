"""Cutting the queues where the log was cut: exactly the rows from there on, every queue right."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvcq.consume_queue_store import KvConsumeQueueStore
from kvcq.engine.protocol import KvBatch
from kvcq.errors import EngineBusyError
from kvcq.tables.keys import FAMILIES
from store.consume_queue import DispatchRequest
from tests.support.memory_engine import MemoryEngine

SIZE = 100


def request(topic: str, offset: int, physical: int, *lights: tuple[str, int]) -> DispatchRequest:
    return DispatchRequest(topic, 0, offset, physical, SIZE, 0, physical, ("k",), lights, True)


def rows(engine: MemoryEngine) -> dict[str, list[tuple[bytes, bytes]]]:
    return {family: engine.scan(family, b"", b"\xff" * 8) for family in FAMILIES}


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(0, 40))
def test_what_is_left_equals_dispatching_only_up_to_the_cut(queues: list[int], kept: int) -> None:
    """The equal case, a cut exactly where a unit begins, is the usual one (and RocketMQ's bug)."""
    kept = min(kept, len(queues))
    requests = []
    next_offset: dict[str, int] = {}
    for number, queue in enumerate(queues):
        topic = f"T{queue}"
        light = f"%LMQ%{number % 3}"
        requests.append(
            request(
                topic,
                next_offset.get(topic, 0),
                number * SIZE,
                (light, next_offset.get(light, 0)),
            )
        )
        next_offset[topic] = next_offset.get(topic, 0) + 1
        next_offset[light] = next_offset.get(light, 0) + 1
    cut_engine = MemoryEngine(FAMILIES)
    cut = KvConsumeQueueStore(cut_engine)
    cut.dispatch(requests, len(queues) * SIZE)
    cut.truncate(kept * SIZE)
    short_engine = MemoryEngine(FAMILIES)
    short = KvConsumeQueueStore(short_engine)
    short.dispatch(requests[:kept], kept * SIZE)
    if kept:
        assert rows(cut_engine) == rows(short_engine)
    assert cut.dispatched_offset == kept * SIZE
    # What is dispatched after the cut stands as if nothing had been there.
    cut.dispatch(requests[kept:], len(queues) * SIZE)
    short.dispatch(requests[kept:], len(queues) * SIZE)
    assert rows(cut_engine) == rows(short_engine)


def test_a_stall_is_waited_out() -> None:
    class Stalling(MemoryEngine):
        """Refuses every other write, once it is told to."""

        is_told = False
        refuses = False

        def write(self, batch: KvBatch) -> None:
            self.refuses = self.is_told and not self.refuses
            if self.refuses:
                raise EngineBusyError("planted")
            super().write(batch)

    engine = Stalling(FAMILIES)
    queues = KvConsumeQueueStore(engine)
    queues.dispatch([request("T", number, number * SIZE) for number in range(10)], 10 * SIZE)
    engine.is_told = True
    queues.truncate(3 * SIZE)
    assert queues.next_offsets([("T", 0)]) == [3]
    assert queues.dispatched_offset == 3 * SIZE


def test_rocketmqs_two_counter_examples() -> None:
    for count, target, last in ((16, 700, 6), (8, 500, 4)):
        store = KvConsumeQueueStore(MemoryEngine(FAMILIES))
        store.dispatch([request("T", n, n * 100) for n in range(count)], count * 100)
        store.truncate(target)
        assert store.next_offsets([("T", 0)]) == [last + 1]


def test_offsets_go_on_when_all_earlier_units_have_expired() -> None:
    engine = MemoryEngine(FAMILIES)
    store = KvConsumeQueueStore(engine)
    store.dispatch([request("T", n, n * SIZE) for n in range(10)], 10 * SIZE)
    dead = engine.scan("default", b"", b"\xff" * 8)[:8]
    engine.write(KvBatch(deletes=[("default", key) for key, _ in dead]))
    store.truncate(8 * SIZE)  # everything that was left
    assert store.next_offsets([("T", 0)]) == [8]


def test_a_cut_above_what_is_dispatched_changes_nothing() -> None:
    engine = MemoryEngine(FAMILIES)
    store = KvConsumeQueueStore(engine)
    store.dispatch([request("T", 0, 0)], SIZE)
    before = rows(engine)
    store.truncate(SIZE)
    assert rows(engine) == before
