"""Queues whose messages have all left the log go on where they ended, whichever side is lost."""

from __future__ import annotations

import shutil
import threading
from typing import TYPE_CHECKING

import pytest

from migration.check import check_store
from migration.fill.pace import Pace
from migration.repair.rebuild_side import set_side_aside
from migration.state import SideName
from migration.state.phase import Phase
from store.message import Message
from tests.support.migrating import (
    LAYOUT,
    WAIT_S,
    advance,
    config,
    differences,
    done,
    live,
    make_on_files,
    open_store,
    settle,
    side_of,
)

if TYPE_CHECKING:
    from pathlib import Path

    from migration.jobs import Job
    from store.config import StoreConfig
    from store.message_store import MessageStore

IDLE = [("idle", 0)]


def soon_expired(root: Path) -> StoreConfig:
    return config(root, reserved_hours=1e-6)  # 3.6 ms


def fill_and_expire(store: MessageStore) -> None:
    """The queue `IDLE` ends at 10, and none of its messages is in the log."""
    store.put([Message("idle", b"x", queue_id=0)] * 10)
    fill_segments(store)
    assert store.bounds(IDLE) == [(10, 10)]


def fill_segments(store: MessageStore) -> None:
    for _ in range(4):
        store.put([Message("busy", bytes(400_000))] * 2)
    store.flush()
    start = store.log.start_offset
    while store.expire() or store.log.start_offset == start:
        pass  # it has expired after 3.6 ms


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_on_files(tmp_path / "store")
    return tmp_path / "store"


@pytest.mark.parametrize("expires", ["before the double write", "behind the cutover"])
def test_the_database_is_lost_behind_the_cutover(root: Path, expires: str) -> None:
    with open_store(soon_expired(root)) as store:
        if expires == "before the double write":
            fill_and_expire(store)
        store.snapshots.take()
        advance(store, Phase.ROCKSDB)
        if expires == "behind the cutover":
            fill_and_expire(store)
    shutil.rmtree(root / "kvcq")
    with open_store(config(root)) as store:
        settle(store)
        assert store.bounds(IDLE) == [(10, 10)]
        assert store.put([Message("idle", b"y", queue_id=0)]).placed[0].queue_offset == 10
        assert differences(store) == []


def test_the_files_are_lost_behind_the_cutover(root: Path) -> None:
    with open_store(soon_expired(root)) as store:
        fill_and_expire(store)
        advance(store, Phase.ROCKSDB)
    shutil.rmtree(root / "consumequeue")
    with open_store(config(root)) as store:
        settle(store)
        assert differences(store) == []
        assert live(store).rollback() is None
        assert store.bounds(IDLE) == [(10, 10)]


def test_files_that_are_lost_with_nothing_in_the_index_are_filled_again(root: Path) -> None:
    with open_store(config(root)) as store:
        store.put([Message("idle", b"x", queue_id=0)] * 10)  # no keys
        advance(store, Phase.ROCKSDB)
    shutil.rmtree(root / "consumequeue")
    with open_store(config(root)) as store:
        settle(store)
        assert live(store).rollback() is None
        assert store.bounds(IDLE) == [(0, 10)]


def test_serving_files_that_are_lost_take_the_ends_from_rocksdb(root: Path) -> None:
    with open_store(soon_expired(root)) as store:
        fill_and_expire(store)
        advance(store, Phase.DOUBLE_WRITE)
    shutil.rmtree(root / "consumequeue")
    set_side_aside(root, SideName.FILES)
    with open_store(config(root)) as store:
        settle(store)
        assert store.bounds(IDLE) == [(10, 10)]
        assert differences(store) == []


def test_a_file_without_units_says_where_its_queue_ends(root: Path) -> None:
    """A broker that is killed leaves one when it has just begun the next file, and the file before
    expires."""
    with open_store(soon_expired(root)) as store:
        fill_and_expire(store)
    queue = root / "consumequeue" / "idle" / "0"
    [file] = queue.iterdir()
    file.write_bytes(bytes(file.stat().st_size))
    file.rename(queue / f"{file.stat().st_size:020}")
    end = LAYOUT.units_per_file
    with open_store(config(root)) as store:
        assert store.bounds(IDLE) == [(end, end)]
        advance(store, Phase.ROCKSDB)
        assert store.bounds(IDLE) == [(end, end)]
        assert live(store).rollback() is None
        assert store.bounds(IDLE) == [(end, end)]
    assert check_store(root) == []


def test_a_side_that_the_log_has_left_behind_begins_anew(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it has the end of an earlier topic of the name, whose deletion left the log."""
    monkeypatch.setattr("migration.fill.catch_up.BATCH", 5)
    monkeypatch.setattr("migration.fill.catch_up._REST_BYTES", 100)
    reached = threading.Event()

    def slow(_pace: Pace, job: Job, _lag: int) -> None:
        if side_of(store, SideName.ROCKSDB).store.next_offsets(IDLE) == [10]:
            reached.set()
            job.pause(WAIT_S)

    with open_store(soon_expired(root)) as store:
        store.put([Message("idle", b"x", queue_id=0)] * 10)
        store.put([Message("busy", b"x")] * 10)
        with monkeypatch.context() as patched:
            patched.setattr(Pace, "after_batch", slow)
            job = live(store).start()
            assert reached.wait(WAIT_S)
            job.cancel()
            assert job.wait(WAIT_S)
        store.delete_topic("idle")
        store.put([Message("idle", b"x", queue_id=0)] * 2)
        fill_segments(store)
        done(live(store).resume())
        assert side_of(store, SideName.ROCKSDB).store.next_offsets(IDLE) == [2]
        assert differences(store) == []
