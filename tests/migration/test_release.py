"""A store in state FILES is given back to RocketMQ, with what was committed here."""

from __future__ import annotations

import shutil
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvcq.engine.rocks import RocksEngine, list_families
from kvcq.engine.rocks.options import ROCKETMQ
from kvcq.tables.keys import BOUNDS, DISPATCHED_KEY, UNITS, unit_key
from kvcq.tables.values import unpack_i64
from migration.broker_config import GroupOffset, read_config
from migration.errors import IllegalStepError, MigrationStateError
from migration.migrator import open_migrator
from migration.plan.plan import plan_directory
from migration.release import Home, release
from migration.state.state import FileLayout, read_state
from migration.steps.adopting import adopt
from migration.steps.inheriting import Inheritance
from store.base import DIRECTORY_MODE
from store.errors import StoreFormatError
from store.message import Message
from store.store_dir import DirKind, inspect
from tests.support.golden_store import (
    INDEX_ENTRIES,
    INDEX_SLOTS,
    SEGMENT_BYTES,
    UNITS_PER_FILE,
    extract_golden,
)
from tests.support.migrating import config, done, make_on_files, open_store

LAYOUT = FileLayout(UNITS_PER_FILE, INDEX_SLOTS, INDEX_ENTRIES)


@pytest.fixture(autouse=True)
def nothing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stores of these tests have random records in topics of the broker's own: what becomes of
    real ones, test_inheriting.py shows."""
    monkeypatch.setattr("migration.steps.live.inherit", lambda *_: Inheritance())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store of RocketMQ's that was taken over, and on which a group committed."""
    root = extract_golden(tmp_path)
    (root / "config").mkdir()
    (root / "config" / "consumerOffset.json").write_text('{"offsetTable":{"orders@g":{0:1}}}')
    adopt(root, layout=LAYOUT)
    with open_store(config(root, segment_bytes=SEGMENT_BYTES)) as store:
        store.commit_offsets("g", [("orders", 0, 7)])
    return root


def test_a_released_store_is_rocketmqs_again_with_our_offsets(root: Path) -> None:
    done_lines = release(root)
    assert any("1 committed offsets" in line for line in done_lines)
    assert inspect(root)[0] is DirKind.ROCKETMQ
    assert read_config(root).offsets == [GroupOffset("g", "orders", 0, 7)]
    left = {each.name for each in root.iterdir()}
    assert not left & {"store.json", "migration.json", "meta", "kvcq", "file_queue_checkpoint"}
    assert left >= {"commitlog", "consumequeue", "index", "config"}
    # What was given back can be taken over again.
    adopt(root, layout=LAYOUT)
    with open_store(config(root, segment_bytes=SEGMENT_BYTES)) as store:
        assert store.committed_offsets("g", [("orders", 0)]) == [7]


def test_topics_and_offsets_are_given_back_where_there_was_no_config(tmp_path: Path) -> None:
    make_on_files(tmp_path)
    with open_store(config(tmp_path)) as store:
        store.create_topics([("orders", 3)])
        store.put([Message(topic="orders", body=b"one")])
        store.commit_offsets("g", [("orders", 0, 0)])
    assert not (tmp_path / "config").exists()
    lines = release(tmp_path)
    assert any("config/ is new" in line for line in lines)
    assert (tmp_path / "config").stat().st_mode & 0o777 == DIRECTORY_MODE
    found = read_config(tmp_path)
    assert found.offsets == [GroupOffset("g", "orders", 0, 0)]
    assert found.topics == {"orders": 3}
    assert inspect(tmp_path)[0] is DirKind.ROCKETMQ


def test_a_release_that_was_cut_short_goes_on(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("migration.release.shutil", SimpleNamespace(rmtree=cut))
        with pytest.raises(KeyboardInterrupt):
            release(root)
    shutil.rmtree(root / "snapshots")
    release(root)
    assert inspect(root)[0] is DirKind.ROCKETMQ
    assert read_state(root) is None


def test_a_lost_state_is_not_taken_for_a_release_under_way(root: Path) -> None:
    for name in ("kvcq", "snapshots"):
        shutil.rmtree(root / name)
    with pytest.raises(StoreFormatError, match="there is no usable snapshot"):
        release(root)


def test_a_lost_database_is_made_again_before_a_release(root: Path) -> None:
    shutil.rmtree(root / "kvcq")
    release(root)
    assert read_config(root).offsets == [GroupOffset("g", "orders", 0, 7)]


def test_only_a_store_on_files_alone_is_released(root: Path) -> None:
    with open_migrator(root) as migrator:
        done(migrator.live.start())
    with pytest.raises(IllegalStepError) as refused:
        release(root)
    assert refused.value.next_command == "kvcq migrate rollback"


def test_a_store_that_was_given_back_is_not_called_finished(root: Path) -> None:
    release(root)
    with pytest.raises(IllegalStepError, match="already belongs to RocketMQ") as refused:
        release(root)
    assert refused.value.hint == "start the RocketMQ broker on it"


def test_a_rollback_to_files_writes_offsets_back(root: Path) -> None:
    with open_migrator(root) as migrator:
        done(migrator.live.start())
        migrator.live.rollback()
        events = [event for _, event in migrator.live.state.history]
    assert read_config(root).offsets == [GroupOffset("g", "orders", 0, 7)]
    assert "committed offsets" in events[-1]


def _to_rocksdb(root: Path) -> None:
    """Verified, and read from RocksDB."""
    with open_migrator(root) as migrator:
        done(migrator.live.start())
        done(migrator.live.verify())
        migrator.live.cutover()


def test_a_store_is_given_back_on_rocksdb_with_the_families_that_a_broker_names(root: Path) -> None:
    _to_rocksdb(root)
    with open_store(config(root, segment_bytes=SEGMENT_BYTES)) as store:
        (placed,) = store.put([Message(topic="orders", body=b"new")]).placed
        end = store.log.appended_offset
    lines = release(root, home=Home.ROCKSDB)
    assert any("storeType=defaultRocksDB" in line for line in lines)
    assert inspect(root)[0] is DirKind.ROCKETMQ
    database = root / "consumequeue"
    assert sorted(list_families(database)) == ["default", "offset"]
    names = {each.name for each in database.iterdir()}
    assert not names & {"rocksdict-config.json", "KVCQ-NOTE"}
    assert not [each for each in database.iterdir() if each.is_dir()]
    left = {each.name for each in root.iterdir()}
    assert not left & {"store.json", "migration.json", "meta", "kvcq", "consumequeue.removed"}
    assert any((root / "index").iterdir())
    engine = RocksEngine.open_read_only(database, ROCKETMQ)
    assert engine.get(UNITS, unit_key("orders", placed.queue_id, placed.queue_offset)) is not None
    checkpoint = engine.get(BOUNDS, DISPATCHED_KEY)
    engine.close()
    assert checkpoint is not None
    assert unpack_i64(checkpoint) == end
    # What was given back can be taken over again, without a fault.
    plan = plan_directory(root, LAYOUT, lambda *_: None)
    assert plan.is_clean
    assert plan.queues_in_rocksdb
    adopt(root, layout=LAYOUT)
    with open_store(config(root, segment_bytes=SEGMENT_BYTES)) as store:
        assert store.bounds([("orders", placed.queue_id)])[0][1] == placed.queue_offset + 1


@pytest.mark.parametrize("place", ["consumequeue", "consumequeue_rocksdb"])
@pytest.mark.parametrize("point", ["moved aside", "in place", "cleared"])
def test_a_release_on_rocksdb_that_was_cut_short_goes_on(
    root: Path, monkeypatch: pytest.MonkeyPatch, point: str, place: str
) -> None:
    _to_rocksdb(root)
    if place != "consumequeue":  # where a broker can have it, apart from the files
        (root / place).mkdir()
        for path in (root / "consumequeue").iterdir():
            if path.is_file():
                path.rename(root / place / path.name)
    renames = {"moved aside": 1, "in place": 2}.get(point, 9)
    calls = count(1)
    rename = Path.rename

    def cut(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    def cut_after(path: Path, target: Path) -> Path:
        renamed = rename(path, target)
        if path.name in (place, "kvcq") and next(calls) == renames:
            raise KeyboardInterrupt
        return renamed

    with monkeypatch.context() as patched:
        if point == "cleared":
            patched.setattr("migration.release.fsync_directory", cut)
        else:
            patched.setattr(Path, "rename", cut_after)
        with pytest.raises(KeyboardInterrupt):
            release(root, home=Home.ROCKSDB)
    assert read_state(root) is not None
    with pytest.raises(MigrationStateError, match="kvcq migrate release"):
        open_store(config(root, segment_bytes=SEGMENT_BYTES))
    release(root)  # it says itself where it goes
    assert inspect(root)[0] is DirKind.ROCKETMQ
    assert sorted(list_families(root / place)) == ["default", "offset"]
    assert not (root / f"{place}.removed").exists()


def test_only_a_verified_store_is_given_back_on_rocksdb(root: Path) -> None:
    for following in ("kvcq migrate start", "kvcq migrate verify"):
        with pytest.raises(IllegalStepError) as refused:
            release(root, home=Home.ROCKSDB)
        assert refused.value.next_command == following
        with open_migrator(root) as migrator:
            done(migrator.live.start())
    with open_migrator(root) as migrator:
        done(migrator.live.verify())
        migrator.live.cutover()
        migrator.live.finish()
    with pytest.raises(IllegalStepError) as refused:
        release(root, home=Home.ROCKSDB)
    assert refused.value.next_command == "kvcq migrate rollback"


def test_a_rocksdb_of_rocketmqs_that_is_behind_is_not_given_back_with_files(root: Path) -> None:
    """A broker that goes by it would not find what was put here."""
    with open_store(config(root, segment_bytes=SEGMENT_BYTES)) as store:
        store.put([Message(topic="orders", body=b"new")])
    with pytest.raises(IllegalStepError, match="does not have all") as refused:
        release(root)
    assert refused.value.next_step.options == ("--files",)
    release(root, home=Home.FILES)
    assert not [each for each in (root / "consumequeue").iterdir() if each.is_file()]
    assert plan_directory(root, LAYOUT, lambda *_: None).is_clean


def test_what_is_no_store_is_not_advised_to_roll_back(tmp_path: Path) -> None:
    for directory in (tmp_path / "empty", tmp_path / "other"):
        directory.mkdir()
    (tmp_path / "other/readme").touch()
    for directory in (tmp_path / "empty", tmp_path / "other"):
        for home in (None, Home.ROCKSDB):
            with pytest.raises(StoreFormatError, match="is not a store"):
                release(directory, home=home)
