"""What is durable and visible when, what a failure ends, and how a store closes."""

from __future__ import annotations

import errno
import os
import queue
import threading
from typing import TYPE_CHECKING

import pytest

from kvcq.consume_queue_store import KvConsumeQueueStore
from kvcq.errors import EngineBusyError, EngineFailedError
from store.config import FlushMode
from store.consume_queue import Boundary
from store.errors import (
    FlushError,
    FlushTimeoutError,
    MessageNotFoundError,
    StoreBusyError,
    StoreClosedError,
    StoreFailedError,
    StoreLockedError,
    UnknownTopicError,
)
from store.format.checkpoint import Checkpoint, read_checkpoint
from store.log.commit_log import CommitLog
from store.message import Message, PullStatus
from tests.crash.images import lose_checkpoints
from tests.support.fake_clock import FakeClock
from tests.support.rebuild import differences, live_engine
from tests.support.stores import bodies, open_small

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from kvcq.engine.protocol import KvBatch
    from store.consume_queue import DispatchRequest
    from store.message_store import MessageStore


def test_sync_puts_are_visible_when_they_are_durable(tmp_path: Path) -> None:
    with open_small(tmp_path / "store", flush_mode=FlushMode.SYNC) as store:
        done = store.put([Message("T", b"x")])
        assert store.is_durable(done.end_offset)
        assert store.flushed_offset == done.end_offset
        assert len(store.pull("T", 0, 0).records) == 1


def test_p5_nothing_is_visible_before_its_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    flush = os.fdatasync

    def slow(descriptor: int) -> None:
        go_on.wait(30)
        flush(descriptor)

    with open_small(tmp_path / "store", flush_mode=FlushMode.SYNC) as store:
        store.create_topics([("T", 1)])
        grown: list[Sequence[DispatchRequest]] = []
        store.on_dispatch(grown.append)
        monkeypatch.setattr(os, "fdatasync", slow)
        done = store.append([Message("T", b"x", keys=("k",), light_queues=("%LMQ%a",))])
        told = threading.Event()
        store.when_durable(done.end_offset, lambda _error: told.set())
        assert not store.is_durable(done.end_offset)
        assert not told.is_set()
        assert store.pull("T", 0, 0).status is PullStatus.NO_NEW_MESSAGE
        assert store.query("T", "k").records == []
        with pytest.raises(UnknownTopicError):
            store.pull("%LMQ%a", 0, 0)
        with pytest.raises(MessageNotFoundError):
            store.get(done.placed[0].physical_offset)
        assert grown == []
        go_on.set()
        assert told.wait(30)
        assert store.is_durable(done.end_offset)
        assert len(store.pull("T", 0, 0).records) == 1
        assert store.get(done.placed[0].physical_offset)
        assert grown == [done.requests]


def test_a_put_that_is_not_flushed_in_time_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    flush = os.fdatasync

    def slow(descriptor: int) -> None:
        go_on.wait(30)
        flush(descriptor)

    root = tmp_path / "store"
    with open_small(root, flush_mode=FlushMode.SYNC) as store:
        store.create_topics([("T", 1)])
    with open_small(root, flush_mode=FlushMode.SYNC, sync_flush_timeout_s=0.01) as store:
        monkeypatch.setattr(os, "fdatasync", slow)
        with pytest.raises(FlushTimeoutError):
            store.put([Message("T", b"x")])
        go_on.set()


def test_a_failed_fsync_ends_writing_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError(errno.EIO, "planted")

    root = tmp_path / "store"
    store = open_small(root, flush_mode=FlushMode.SYNC)
    before = store.put([Message("T", b"kept")])
    monkeypatch.setattr(os, "fdatasync", fail)
    done = store.append([Message("T", b"lost")])
    told: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
    store.when_durable(done.end_offset, told.put)
    assert isinstance(told.get(timeout=30), FlushError)
    with pytest.raises(StoreFailedError):
        store.put([Message("T", b"more")])
    with pytest.raises(StoreFailedError):
        store.create_topics([("U", 1)])
    assert bodies(store.pull("T", 0, 0).records) == [b"kept"]  # reads go on
    monkeypatch.undo()
    with pytest.raises(FlushError):
        store.flush()  # never tried again as if nothing had happened
    store.close()
    assert (root / "abort").exists()
    with open_small(root, flush_mode=FlushMode.SYNC) as store:
        assert bodies(store.pull("T", 0, 0).records)[:1] == [b"kept"]
        assert store.get(before.placed[0].physical_offset)
        store.put([Message("T", b"again")])


def test_a_dispatch_that_fails_ends_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    store = open_small(root)
    store.put([Message("T", b"a")])
    engine = live_engine(store)

    def fail(_batch: KvBatch) -> None:
        raise EngineFailedError("planted")

    monkeypatch.setattr(engine, "write", fail)
    store.put([Message("T", b"b")])  # acknowledged when appended
    with pytest.raises(StoreFailedError, match="planted"):
        store.put([Message("T", b"c")])
    monkeypatch.undo()
    store.close()
    with open_small(root) as store:
        assert bodies(store.pull("T", 0, 0).records) == [b"a", b"b"]
        assert differences(store) == []


def test_a_stalled_dispatch_is_made_up_for(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = live_engine(store)
    write = engine.write
    stalls = iter(range(5))

    def stalling(batch: KvBatch) -> None:
        if next(stalls, None) is not None:
            raise EngineBusyError("planted")
        write(batch)

    store.create_topics([("T", 1)])
    monkeypatch.setattr(engine, "write", stalling)
    ends = [store.put([Message("T", b"%d" % number)]).end_offset for number in range(10)]
    assert store._appends.dispatched.wait_for(ends[-1], 30)
    assert bodies(store.pull("T", 0, 0).records) == [b"%d" % number for number in range(10)]


def test_puts_are_refused_while_dispatch_lags_too_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_small(tmp_path / "store", max_dispatch_lag_bytes=1 << 16) as store:
        store.create_topics([("T", 1)])
        engine = live_engine(store)
        write = engine.write
        stalled = True

        def stalling(batch: KvBatch) -> None:
            if stalled:
                raise EngineBusyError("planted")
            write(batch)

        monkeypatch.setattr(engine, "write", stalling)
        for _ in range(59):  # of 1,112 bytes each
            store.append([Message("T", b"x" * 1000)])
        with pytest.raises(StoreBusyError, match="behind"):
            store.append([Message("T", b"x" * 1000)])
        stalled = False
        store.put([Message("T", b"x")])
        assert differences(store) == []


def test_an_expiry_that_fails_does_not_hold_the_checkpoint_back(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        raise StoreBusyError("no filter")

    monkeypatch.setattr(store.queues, "maintain", fails)
    end = store.put([Message("T", b"x")]).end_offset
    store.flush()
    store.put([Message("T", b"x")])
    store.log.flush(0)
    with pytest.raises(StoreBusyError, match="no filter"):
        store.maintain()
    assert store.flushed_offset >= end
    checkpoint = read_checkpoint(store.config.root / "checkpoint")
    assert checkpoint is not None
    assert checkpoint.flushed_offset == store.log.appended_offset


def test_closing_does_not_wait_for_a_whole_compaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_small(tmp_path)
    store.put([Message("T", b"x")])
    store._upkeep.segments_dropped(0, None)
    pieces: list[float] = []

    def compact(progress: Callable[[float], None]) -> None:
        for piece in (0.25, 0.5, 0.75, 1.0):
            if pieces:
                store.close()
            pieces.append(piece)
            progress(piece)

    monkeypatch.setattr(store.queues, "compact", compact)
    store._upkeep.reclaim()
    assert pieces == [0.25, 0.5]


def test_closed_is_closed(tmp_path: Path) -> None:
    store = open_small(tmp_path / "store")
    place = store.put([Message("T", b"x")]).placed[0].physical_offset
    with pytest.raises(StoreLockedError):
        open_small(tmp_path / "store")
    store.close()
    store.close()
    for call in (
        lambda: store.put([Message("T", b"x")]),
        lambda: store.pull("T", 0, 0),
        lambda: store.get(place),
        lambda: store.query("T", "k"),
        lambda: store.bounds([("T", 0)]),
        lambda: store.search_time("T", 0, 0, Boundary.LOWER),
        lambda: store.create_topics([("U", 1)]),
        lambda: store.delete_topic("T"),
        lambda: store.list_topics("", None, 1),
        lambda: store.commit_offsets("g", [("T", 0, 0)]),
    ):
        with pytest.raises(StoreClosedError):
            call()
    assert not (tmp_path / "store" / "abort").exists()


def test_a_close_that_fails_lets_go_of_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    store = open_small(root)
    store.put([Message("T", b"x")])
    close = KvConsumeQueueStore.close

    def fail(queues: KvConsumeQueueStore) -> None:
        close(queues)
        raise EngineFailedError("planted")

    monkeypatch.setattr(KvConsumeQueueStore, "close", fail)
    with pytest.raises(EngineFailedError):
        store.close()
    monkeypatch.undo()
    assert (root / "abort").exists()
    with open_small(root) as store:
        assert len(store.pull("T", 0, 0).records) == 1


def test_listeners_hear_what_grew(store: MessageStore) -> None:
    heard: list[Sequence[DispatchRequest]] = []

    def broken(_requests: Sequence[DispatchRequest]) -> None:
        raise RuntimeError("planted")

    store.create_topics([("T", 2), ("U", 1)])
    store.on_dispatch(broken)
    leave = store.on_dispatch(heard.append)
    done = store.put([Message("T", b"x", 1, light_queues=("%LMQ%a",)), Message("U", b"x")])
    assert heard == [done.requests]
    leave()
    store.put([Message("T", b"x")])
    assert len(heard) == 1


def test_cold_reads_say_so_and_read_the_same(tmp_path: Path) -> None:
    with open_small(tmp_path / "store", hot_read_bytes=4096) as store:
        store.put([Message("T", b"x" * 1000) for _ in range(100)])
        assert store.is_cold("T", 0, 0)
        assert not store.is_cold("T", 0, 99)
        assert not store.is_cold("T", 0, 100)
        assert len(store.pull("T", 0, 0, max_messages=1000).records) == 100


def test_an_idle_store_flushes_nothing_and_counts_no_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(os, "fdatasync", flushed.append)
    rounds = threading.Semaphore(0)
    flush = CommitLog.flush

    def counted(log: CommitLog, least_pages: int) -> int:
        rounds.release()
        return flush(log, least_pages)

    monkeypatch.setattr(CommitLog, "flush", counted)
    with open_small(tmp_path / "store", flush_interval_ms=1) as store:
        store.put([Message("T", b"x")])
        store.flush()
        before = store.statistics()["store.flush_count"]
        flushed.clear()
        while rounds.acquire(blocking=False):
            pass
        for _ in range(5):
            assert rounds.acquire(timeout=60)
        assert store.statistics()["store.flush_count"] == before >= 1
        assert flushed == []


def test_statistics_are_numbers(store: MessageStore) -> None:
    store.put([Message("T", b"x")])
    statistics = store.statistics()
    assert statistics["store.log_appended_offset"] == store.log.appended_offset
    assert all(isinstance(value, (int, float)) for value in statistics.values())


@pytest.mark.parametrize("mode", list(FlushMode))
def test_the_checkpoint_has_times_of_what_is_durable_and_of_nothing_else(
    tmp_path: Path, mode: FlushMode
) -> None:
    clock = FakeClock()
    times = []

    def put(store: MessageStore) -> int:
        clock.advance(5)
        done = store.append([Message("T", b"x")])
        times.append(done.store_time_ms)
        return done.placed[0].physical_offset

    def checkpoint() -> Checkpoint:
        found = read_checkpoint(tmp_path / "checkpoint")
        assert found is not None
        return found

    with open_small(tmp_path, clock, flush_mode=mode) as store:
        store.maintain()
        assert checkpoint() == Checkpoint()
        put(store)
        store.flush()
        store.wait_visible()  # SYNC: dispatched once it is flushed
        store.flush()
        assert checkpoint().log_time_ms == checkpoint().queue_time_ms == times[0]
        put(store)
        store._services.flush.request(store.log.appended_offset)
        assert store._appends.flushed.wait_for(store.log.appended_offset, 30)
        store.maintain()
        assert (checkpoint().log_time_ms, checkpoint().queue_time_ms) == (times[1], times[0])
        if mode is FlushMode.ASYNC:
            put(store)
            store.maintain()
            assert checkpoint().log_time_ms == times[1]
        last = put(store)
    assert checkpoint().log_time_ms == checkpoint().queue_time_ms == times[-1]
    assert checkpoint().flushed_offset > last
    (tmp_path / "abort").write_bytes(b"1")
    lose_checkpoints(tmp_path)
    with open_small(tmp_path, clock):
        pass
    assert checkpoint().confirmed_offset == last  # where the last record begins
    clock.jump(-300)
    with open_small(tmp_path, clock) as store:  # nothing is scanned: the checkpoint knows
        assert store.put([Message("T", b"x")]).store_time_ms == times[-1]
