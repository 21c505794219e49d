"""The consume queues over both engines: dispatch once, read back, delete, find again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kvcq.consume_queue_store import KvConsumeQueueStore
from kvcq.engine.protocol import KvBatch
from kvcq.engine.rocks import RocksEngine
from kvcq.engine.rocks.options import DERIVED
from kvcq.errors import CorruptValueError, EngineBusyError
from kvcq.tables.keys import DISPATCHED_KEY, FAMILIES, unit_key
from store.consume_queue import Boundary, CqUnit, DispatchRequest
from store.errors import DamagedQueueError, StoreBusyError
from tests.support.memory_engine import MemoryEngine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SIZE = 100


@pytest.fixture(params=["memory", "rocks"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MemoryEngine | RocksEngine]:
    opened: MemoryEngine | RocksEngine = (
        MemoryEngine(FAMILIES)
        if request.param == "memory"
        else RocksEngine.open(tmp_path / "kvcq", DERIVED)
    )
    yield opened
    opened.close()


def message(
    topic: str, offset: int, physical: int, *keys: str, light: tuple[tuple[str, int], ...] = ()
) -> DispatchRequest:
    return DispatchRequest(topic, 0, offset, physical, SIZE, offset, physical, keys, light, True)


def rows(engine: MemoryEngine | RocksEngine) -> list[list[tuple[bytes, bytes]]]:
    return [engine.scan(family, b"", b"\xff" * 8) for family in FAMILIES]


def test_dispatching_again_changes_nothing(engine: MemoryEngine | RocksEngine) -> None:
    store = KvConsumeQueueStore(engine)
    requests = [message("T", n, n * SIZE, f"k{n}") for n in range(5)]
    store.dispatch(requests, 5 * SIZE)
    before = rows(engine)
    store.dispatch(requests[2:4], 4 * SIZE)
    assert rows(engine) == before
    store.dispatch([*requests[3:], message("T", 5, 5 * SIZE)], 6 * SIZE)
    assert store.next_offsets([("T", 0), ("nobody", 0)]) == [6, 0]
    assert store.dispatched_offset == 6 * SIZE


def test_units_read_back_in_order_and_a_hole_shows(engine: MemoryEngine | RocksEngine) -> None:
    store = KvConsumeQueueStore(engine)
    store.dispatch([message("T", n, n * SIZE) for n in range(6)], 6 * SIZE)
    assert store.read_units("T", 0, 2, 3) == [
        (n, CqUnit(n * SIZE, SIZE, n, n * SIZE)) for n in (2, 3, 4)
    ]
    engine.write(KvBatch(deletes=[("default", unit_key("T", 0, 3))]))
    assert [offset for offset, _ in store.read_units("T", 0, 2, 3)] == [2, 4]
    with pytest.raises(DamagedQueueError):
        store.search_time("T", 0, 3 * SIZE, Boundary.LOWER, 0)
    store.rewrite([message("T", 3, 3 * SIZE)])
    assert [offset for offset, _ in store.read_units("T", 0, 2, 3)] == [2, 3, 4]
    assert store.next_offsets([("T", 0)]) == [6]


def test_reads_write_nothing(engine: MemoryEngine | RocksEngine) -> None:
    store = KvConsumeQueueStore(engine)
    store.dispatch([message("T", n, n * SIZE, "k") for n in range(6)], 6 * SIZE)
    before = rows(engine)
    store.bounds("T", 0, 4 * SIZE)
    store.bounds("nobody", 3, 4 * SIZE)
    store.read_units("nobody", 0, 0, 10)
    store.search_time("nobody", 0, 5, Boundary.UPPER, 0)
    store.query_key("nobody", "k", 0, 10**6, None, 5)
    store.queue_ids("nobody")
    store.list_names("n", None, 5)
    assert rows(engine) == before


def test_deleting_a_topic_leaves_no_row_of_it(engine: MemoryEngine | RocksEngine) -> None:
    store = KvConsumeQueueStore(engine)
    store.dispatch(
        [message("T", 0, 0, "k"), message("TT", 0, SIZE, "k"), message("S", 0, 2 * SIZE, "k")],
        3 * SIZE,
    )
    store.delete_topic("T", 3 * SIZE)
    for row in [key for family in rows(engine) for key, _ in family]:
        assert b"\x01T\x01" not in row
    assert store.next_offsets([("T", 0), ("TT", 0), ("S", 0)]) == [0, 1, 1]
    store.dispatch([message("T", 0, 3 * SIZE)], 4 * SIZE)
    assert store.bounds("T", 0, 0) == (0, 1)


def test_a_stall_is_busy_and_the_same_dispatch_may_be_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = MemoryEngine(FAMILIES)
    store = KvConsumeQueueStore(engine)

    def stall(_batch: KvBatch) -> None:
        raise EngineBusyError("stalled")

    with monkeypatch.context() as patched:
        patched.setattr(engine, "write", stall)
        with pytest.raises(StoreBusyError):
            store.dispatch([message("T", 0, 0)], SIZE)
    assert store.dispatched_offset == 0
    store.dispatch([message("T", 0, 0)], SIZE)
    assert store.next_offsets([("T", 0)]) == [1]


def test_a_negative_checkpoint_is_damage(engine: MemoryEngine | RocksEngine) -> None:
    row = (DISPATCHED_KEY, (-1).to_bytes(8, "big", signed=True))
    engine.write(KvBatch(puts={"offset": [row]}))
    with pytest.raises(CorruptValueError):
        KvConsumeQueueStore(engine)
