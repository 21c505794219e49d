"""RocksDB stalls now and then: nothing is lost, repeated, left out or put in another order."""

from __future__ import annotations

import random
import shutil
import threading
from functools import partial
from typing import TYPE_CHECKING

import pytest

from kvcq.engine.rocks import RocksEngine
from kvcq.errors import EngineBusyError
from kvcq.tables.keys import INDEX
from store.config import FlushMode
from store.errors import FlushTimeoutError
from store.log.watermark import Watermark
from store.message import Message
from tests.support.dispatching import until_met
from tests.support.fake_clock import FakeClock
from tests.support.rebuild import differences, live_engine
from tests.support.stores import open_small

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from kvcq.engine.protocol import KvBatch
    from store.log.queue_offsets import QueueKey


def run_all(actions: Iterable[Callable[[], None]]) -> None:
    """Each on a thread of its own, to the end; raises what one of them raised."""
    errors: list[BaseException] = []

    def caught(action: Callable[[], None]) -> None:
        try:
            action()
        except BaseException as error:  # noqa: BLE001 - raised again below
            errors.append(error)

    threads = [threading.Thread(target=caught, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_opening_waits_for_a_stall_during_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_small(tmp_path / "store") as store:
        store.put([Message("T", b"x")] * 3)
        shutil.copytree(tmp_path / "store", tmp_path / "killed")
    write = RocksEngine.write
    stalls = iter(range(3))

    def stalling(engine: RocksEngine, batch: KvBatch) -> None:
        if INDEX in batch.puts and next(stalls, None) is not None:
            raise EngineBusyError("planted")
        write(engine, batch)

    monkeypatch.setattr(RocksEngine, "write", stalling)
    with open_small(tmp_path / "killed") as store:
        assert next(stalls, None) is None
        assert len(store.pull("T", 0, 0).records) == 3
        assert differences(store) == []


def test_a_later_deletion_waits_for_one_that_met_a_stall(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, clock = tmp_path / "store", FakeClock()
    with open_small(root, clock) as store:
        store.put([Message("T", b"old", 1, keys=("k",)), Message("U", b"x")])
        engine = live_engine(store)
        write = engine.write
        is_stalled, met = True, threading.Event()

        def stalling(batch: KvBatch) -> None:
            if is_stalled and (batch.deletes or batch.delete_ranges):
                met.set()
                raise EngineBusyError("planted")
            write(batch)

        monkeypatch.setattr(engine, "write", stalling)
        with monkeypatch.context() as patch:
            patch.setattr(Watermark, "wait_for", until_met(met))
            with pytest.raises(FlushTimeoutError):
                store.delete_topic("T")
        is_stalled = False
        store.delete_topic("U")
        store.put([Message("T", b"new")])
        assert store.query("T", "k").records == []
        store.flush()
    with open_small(root, clock) as store:
        assert store.query("T", "k").records == []
        assert store.bounds([("T", 0), ("T", 1)]) == [(0, 1), (0, 0)]
        assert differences(store) == []


@pytest.mark.parametrize("mode", FlushMode)
@pytest.mark.parametrize("seed", range(2))
def test_offsets_stay_dense_while_many_queues_share_a_tiny_hot_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: FlushMode, seed: int
) -> None:
    """Four producers, 90 queues, room for 16 of them in memory, dispatch that stalls and lags."""
    with open_small(tmp_path / "store", flush_mode=mode, hot_queue_limit=16) as store:
        engine = live_engine(store)
        write = engine.write
        luck = random.Random(seed)

        def stalling(batch: KvBatch) -> None:
            if luck.random() < 0.1:
                raise EngineBusyError("planted")
            write(batch)

        monkeypatch.setattr(engine, "write", stalling)
        load = store.log.hot_queues._load
        loaded: list[QueueKey] = []

        def counting(
            queues: Sequence[tuple[str, int]], light: Sequence[str], log_end: int
        ) -> Sequence[int]:
            loaded.extend((*queues, *light))
            return load(queues, light, log_end)

        store.log.hot_queues._load = counting
        taken: list[tuple[str, int, int]] = []

        def produce(number: int) -> None:
            chance = random.Random(seed * 10 + number)
            for count in range(120):
                lights = tuple({f"%LMQ%{chance.randrange(30)}" for _ in range(chance.randrange(3))})
                batch = [
                    Message(
                        f"T{chance.randrange(15)}",
                        b"%d" % count + b"x" * chance.choice((0, 10, 3000)),
                        chance.randrange(4),
                        light_queues=lights,
                    )
                    for _ in range(chance.randrange(1, 8))
                ]
                done = store.append(batch)
                if count % 10 == 9:  # let dispatch catch up, so that queues are forgotten
                    assert store._appends.dispatched.wait_for(done.end_offset, 30)
                for message, placed in zip(batch, done.placed, strict=True):
                    taken.append((message.topic, placed.queue_id, placed.queue_offset))
                    taken.extend(
                        (name, 0, offset)
                        for name, offset in zip(lights, placed.light_queue_offsets, strict=True)
                    )

        run_all([partial(produce, number) for number in range(4)])
        assert len(loaded) > 2 * len(set(loaded))  # forgotten, and loaded again
        end = store.log.appended_offset
        store._services.flush.request(end)
        assert store._appends.dispatched.wait_for(end, 30)
        assert len(taken) == len(set(taken))
        queues: dict[tuple[str, int], int] = {}
        for topic, queue_id, _ in taken:
            queues[(topic, queue_id)] = queues.get((topic, queue_id), 0) + 1
        assert [bounds.max_offset for bounds in store.bounds(list(queues))] == [*queues.values()]
        assert differences(store) == []
