"""A store in state FILES is given back to RocketMQ, with what was committed here."""

from __future__ import annotations

import shutil
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from migration.broker_config import GroupOffset, read_config
from migration.errors import IllegalStepError
from migration.migrator import adopt_directory, open_migrator
from migration.opening import open_store
from migration.release import release
from migration.state import FileLayout, read_state
from store.errors import StoreFormatError
from store.store_dir import DirKind, inspect
from tests.support.golden_store import (
    INDEX_ENTRIES,
    INDEX_SLOTS,
    SEGMENT_BYTES,
    UNITS_PER_FILE,
    extract_golden,
)
from tests.support.migrating import config, done

if TYPE_CHECKING:
    from pathlib import Path

LAYOUT = FileLayout(UNITS_PER_FILE, INDEX_SLOTS, INDEX_ENTRIES)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store of RocketMQ's that was taken over, and on which a group committed."""
    root = extract_golden(tmp_path)
    (root / "config").mkdir()
    (root / "config" / "consumerOffset.json").write_text('{"offsetTable":{"orders@g":{0:1}}}')
    adopt_directory(root, layout=LAYOUT)
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
    adopt_directory(root, layout=LAYOUT)
    with open_store(config(root, segment_bytes=SEGMENT_BYTES)) as store:
        assert store.committed_offsets("g", [("orders", 0)]) == [7]


def test_a_release_that_was_cut_short_goes_on(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("migration.release.shutil", SimpleNamespace(rmtree=cut))
        with pytest.raises(KeyboardInterrupt):
            release(root)
    shutil.rmtree(root / "meta")
    release(root)
    assert inspect(root)[0] is DirKind.ROCKETMQ
    assert read_state(root) is None


def test_a_lost_meta_directory_is_not_taken_for_a_release_under_way(root: Path) -> None:
    shutil.rmtree(root / "meta")
    with pytest.raises(StoreFormatError, match="committed offsets"):
        release(root)


def test_only_a_store_on_files_alone_is_released(root: Path) -> None:
    with open_migrator(root) as migrator:
        done(migrator.start())
    with pytest.raises(IllegalStepError) as refused:
        release(root)
    assert refused.value.next_command == "kvcq migrate rollback"


def test_a_store_that_was_given_back_is_not_called_finished(root: Path) -> None:
    release(root)
    with pytest.raises(IllegalStepError, match="RocketMQ's already") as refused:
        release(root)
    assert refused.value.next_command == "start the RocketMQ broker on it"


def test_a_rollback_to_files_writes_offsets_back(root: Path) -> None:
    with open_migrator(root) as migrator:
        done(migrator.start())
        migrator.rollback()
        events = [event for _, event in migrator.status().state.history]
    assert read_config(root).offsets == [GroupOffset("g", "orders", 0, 7)]
    assert "committed offsets" in events[-1]
