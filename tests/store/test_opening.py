"""Opening: one order that is safe, bounded work, and nothing expires that lives."""

from __future__ import annotations

import errno
import shutil
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from kvcq.engine.rocks import RocksEngine
from kvcq.opening import open_store
from kvcq.tables.keys import topic_range
from store.base import SystemClock
from store.errors import CorruptRecordError, StoreFormatError
from store.log.segment import Segment
from store.message import Message
from tests.crash.images import lose_checkpoints
from tests.support.fake_clock import FakeClock
from tests.support.rebuild import differences, live_engine
from tests.support.stores import SEGMENT_BYTES, open_small, small_config
from tests.support.tree import copy_open

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kvcq.engine.protocol import Pair
    from store.message_store import MessageStore


def fill_segments(store: MessageStore, count: int, clock: FakeClock | None = None) -> None:
    """Until the log's end lies in the segment of that number; with a clock, one put in 10 s."""
    while store.log.appended_offset < count * SEGMENT_BYTES:
        store.put([Message("T", b"x" * 5000)])
        if clock is not None:
            clock.advance(10)


def test_a_running_store_is_marked_until_it_is_closed(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_small(root):
        assert (root / "abort").exists()
    assert not (root / "abort").exists()


def test_progress_rises_from_step_to_step(tmp_path: Path) -> None:
    root, image = tmp_path / "store", tmp_path / "image"
    with open_small(root) as store:
        fill_segments(store, 2)
        copy_open(root, image)
    steps: list[tuple[str, float]] = []
    open_store(
        small_config(image),
        clock=FakeClock(),
        progress=lambda what, share: steps.append((what, share)),
    ).close()
    replay = [share for what, share in steps if what == "replaying the log"]
    assert replay == sorted(replay)
    assert replay[-1] == 1
    assert all(0 <= share <= 1 for _, share in steps)


def test_a_store_that_cannot_be_opened_is_let_go(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_small(root) as store:
        store.put([Message("T", b"x")])
    segment = root / "commitlog" / f"{0:020}"
    data = segment.read_bytes()
    segment.write_bytes(data[:100])
    for _ in range(2):
        with pytest.raises(StoreFormatError):
            open_small(root)
    segment.write_bytes(data)
    with open_small(root) as store:
        assert len(store.pull("T", 0, 0).records) == 1


def test_missing_segments_are_refused(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_small(root) as store:
        fill_segments(store, 2)
    last = max((root / "commitlog").iterdir())
    aside = last.rename(tmp_path / "aside")
    with pytest.raises(StoreFormatError, match="missing"):
        open_small(root)
    shutil.rmtree(root / "commitlog")
    with pytest.raises(StoreFormatError, match="missing"):
        open_small(root)
    assert aside.exists()


def test_damage_that_must_be_replayed_fails_the_opening(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_small(root) as store:
        place = store.put([Message("T", b"x" * 50)] * 3).placed[1].physical_offset
    shutil.rmtree(root / "kvcq")
    path = root / "commitlog" / f"{0:020}"
    data = bytearray(path.read_bytes())
    data[place + 100] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptRecordError) as caught:
        open_small(root)
    assert caught.value.physical_offset == place


def test_damage_in_a_log_that_was_closed_in_order_is_not_cut(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_small(root) as store:
        placed = store.put([Message("T", b"x" * 50)] * 10).placed
    lose_checkpoints(root)  # so that all of the log is checked
    path = root / "commitlog" / f"{0:020}"
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[placed[3].physical_offset + 100] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(CorruptRecordError, match=f"goes on at {placed[4].physical_offset}") as seen:
        open_small(root)
    assert seen.value.physical_offset == placed[3].physical_offset
    assert path.read_bytes() == damaged
    path.write_bytes(whole)
    with open_small(root) as store:
        assert store.bounds([("T", 0)])[0].max_offset == 10


def test_committed_offsets_end_where_a_power_loss_ended_their_queues(tmp_path: Path) -> None:
    root, image = tmp_path / "store", tmp_path / "image"
    with open_small(root) as store:
        placed = [store.put([Message("T", b"x" * 50)]).placed[0] for _ in range(2)]
        store.commit_offsets("h", [("T", 0, 2)])
        placed += [store.put([Message("T", b"x" * 50)]).placed[0] for _ in range(8)]
        store.put([Message("U", b"x")])
        store.commit_offsets("g", [("T", 0, 10), ("U", 0, 1)])
        copy_open(root, image)
    # The end of the log did not reach the disk, with the records of the commits.
    lose_checkpoints(image)
    shutil.rmtree(image / "kvcq")
    path = image / "commitlog" / f"{0:020}"
    data = path.read_bytes()
    path.write_bytes(data[: placed[3].physical_offset].ljust(len(data), b"\0"))
    with open_small(image) as store:
        assert store.bounds([("T", 0)])[0].max_offset == 3
        assert store.committed_offsets("g", [("T", 0), ("U", 0)]) == [None, None]
        assert store.committed_offsets("h", [("T", 0)]) == [2]


def test_prepared_segments_of_a_killed_process_do_no_harm(tmp_path: Path) -> None:
    root, image = tmp_path / "store", tmp_path / "image"
    with open_small(root, preallocate=True) as store:
        fill_segments(store, 1)
        copy_open(root, image)
    with open_small(image, preallocate=True) as store:
        fill_segments(store, 3)
        assert differences(store) == []
    starts = sorted(int(path.name) for path in (image / "commitlog").iterdir())
    assert starts == [n * SEGMENT_BYTES for n in range(4)]


# --- expiry (P8) ------------------------------------------------------------------------------


def test_a_live_segment_before_an_empty_one_is_not_dropped(tmp_path: Path) -> None:
    # A crash at the roll leaves it so: the closed segment's last time is not known from behind.
    root, image = tmp_path / "store", tmp_path / "image"
    clock = FakeClock()
    with open_small(root, clock, reserved_hours=1) as store:
        fill_segments(store, 1)
        store.flush()
        copy_open(root, image)
    path = image / "commitlog" / f"{SEGMENT_BYTES:020}"
    path.write_bytes(bytes(SEGMENT_BYTES))  # the first record behind the blank was lost
    lose_checkpoints(image)
    shutil.rmtree(image / "kvcq")
    with open_small(image, clock, reserved_hours=1) as store:
        assert store.log.appended_offset == SEGMENT_BYTES
        store.flush()
        assert store._services.retention.run_once(now=True) == 0
        clock.advance(3601)
        assert store._services.retention.run_once(now=True) == 1


def test_p8_nothing_is_dropped_on_a_read_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    clock = FakeClock()
    with open_small(root, clock, reserved_hours=1) as store:
        fill_segments(store, 2)
        store.flush()
        clock.advance(7200)
    with open_small(root, clock, reserved_hours=1) as store:
        pread = Segment.pread

        def fails(segment: Segment, position: int, size: int) -> bytes:
            if segment.start_offset == SEGMENT_BYTES:
                raise OSError(errno.EIO, "planted")
            return pread(segment, position, size)

        monkeypatch.setattr(Segment, "pread", fails)
        assert store._services.retention.run_once(now=True) == 0
        assert store._services.retention.read_errors == 1
        assert store.log.start_offset == 0


@pytest.mark.parametrize("ahead_s", [0, 100_000])
def test_p8_compaction_takes_the_dead_and_leaves_the_living(tmp_path: Path, ahead_s: int) -> None:
    # RocksDB's filter goes by the machine's clock; ours may be ahead of it.
    clock = FakeClock(SystemClock().now_ms() - 7_200_000)
    with open_small(tmp_path / "store", clock, reserved_hours=1, expiry_margin_s=2) as store:
        fill_segments(store, 3, clock)
        clock.advance((SystemClock().now_ms() - clock.now_ms()) / 1000 + ahead_s)
        store.put([Message("T", b"y", keys=("k",))] * 50)
        store.flush()
        assert store._services.retention.run_once(now=True) == 3
        low, high = store.bounds([("T", 0)])[0]
        store._upkeep.reclaim()
        assert store.bounds([("T", 0)])[0] == (low, high)
        assert differences(store) == []
        left = len(live_engine(store).scan("default", *topic_range("T")))
        # Without one delete: a clock that is ahead only makes dead units stay longer.
        assert left == high - low if not ahead_s else left == high
        assert len(store.pull("T", 0, low, max_messages=1000).records) == high - low


# --- bounded work (P15) -----------------------------------------------------------------------


def grown(root: Path, queues: int) -> None:
    """A store with that many light queues, one message in each."""
    with open_small(root, segment_bytes=1 << 20) as store:
        for first in range(0, queues, 64 * 50):
            store.put(
                [
                    Message("T", b"", light_queues=tuple(f"%LMQ%{n}" for n in range(at, at + 64)))
                    for at in range(first, min(queues, first + 64 * 50), 64)
                ]
            )


class CountingReads:
    """Counts the rows that are read from RocksDB."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows = 0
        scan, get, multi_get = RocksEngine.scan, RocksEngine.get, RocksEngine.multi_get

        def counted_scan(
            engine: RocksEngine,
            family: str,
            start: bytes,
            end: bytes,
            *,
            limit: int | None = None,
            reverse: bool = False,
            fill_cache: bool = True,
        ) -> list[Pair]:
            found = scan(
                engine, family, start, end, limit=limit, reverse=reverse, fill_cache=fill_cache
            )
            self.rows += len(found)
            return found

        def counted_get(engine: RocksEngine, family: str, key: bytes) -> bytes | None:
            self.rows += 1
            return get(engine, family, key)

        def counted_multi_get(
            engine: RocksEngine, family: str, keys: Sequence[bytes]
        ) -> list[bytes | None]:
            self.rows += len(keys)
            return multi_get(engine, family, keys)

        monkeypatch.setattr(RocksEngine, "scan", counted_scan)
        monkeypatch.setattr(RocksEngine, "get", counted_get)
        monkeypatch.setattr(RocksEngine, "multi_get", counted_multi_get)


def test_p15_opening_does_not_grow_with_the_queues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peaks = []
    rows = []
    for queues in (6_400, 64_000):
        root = tmp_path / str(queues)
        grown(root, queues)
        counted = CountingReads(monkeypatch)
        # Reading ahead has a piece of the log in memory, at some time after the opening.
        monkeypatch.setattr("store.log.page_ahead._BUSY_WAIT_S", 3600.0)
        tracemalloc.start()
        with open_small(root, segment_bytes=1 << 20) as store:
            store.put([Message("T", b"", light_queues=("%LMQ%5",))])
            assert store.bounds([("%LMQ%5", 0)])[0].max_offset == 2
            assert store.statistics()["store.hot_queues"] <= 2
            peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        monkeypatch.undo()
        rows.append(counted.rows)
    assert rows[1] <= rows[0] + 20
    assert peaks[1] < peaks[0] * 1.2 + 200_000
