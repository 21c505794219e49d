"""The store over files that another program wrote, and over files that are gone."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from migration.files.checkpoint import CHECKPOINT_FILE, note_whole
from tests.support.dispatch_log import DispatchLog, expected, seen
from tests.support.file_stores import catch_up, filled, hits, open_store, tree

if TYPE_CHECKING:
    from pathlib import Path


def legacy(root: Path, log: DispatchLog) -> Path:
    """Files as RocketMQ leaves them: no checkpoint of ours."""
    store = open_store(root, log)
    catch_up(store, log)
    store.close()
    (root / CHECKPOINT_FILE).unlink()
    return root


def test_legacy_files_that_were_proved_whole_are_not_compared_again(tmp_path: Path) -> None:
    log = filled(40)
    root = legacy(tmp_path, log)
    note_whole(root, log.end, indexed=True)
    before = tree(root)
    store = open_store(root, log)
    assert store.dispatched_offset == log.end
    assert seen(store, log) == expected(log)
    assert len(hits(store, "T0", "k0")) == 10
    assert tree(root) == before


def test_legacy_files_are_compared_with_the_log(tmp_path: Path) -> None:
    log = filled(40)
    root = legacy(tmp_path, log)
    before = tree(root)
    store = open_store(root, log)
    assert store.dispatched_offset == 0
    assert seen(store, log) == expected(log)
    assert tree(root) == before
    catch_up(store, log)
    store.close()
    after = tree(root)
    assert {name for name in after if "consumequeue/" in name} == {
        name for name in before if "consumequeue/" in name
    }
    assert all(after[name] == before[name] for name in before if "consumequeue" in name)
    assert len(hits(open_store(root, log), "T0", "k0")) == 10


def test_h22_index_that_the_original_deleted_is_made_again(tmp_path: Path) -> None:
    log = filled(40)
    root = legacy(tmp_path, log)
    max((root / "index").iterdir()).unlink()
    store = open_store(root, log)
    catch_up(store, log)
    for n, each in enumerate(log.requests):
        assert each.physical_offset in hits(store, each.topic, f"u{n}")


@pytest.mark.parametrize("which", ["index", "consumequeue"])
def test_removed_directory_is_derived_again(tmp_path: Path, which: str) -> None:
    log = filled(40)
    store = open_store(tmp_path, log)
    catch_up(store, log)
    store.close()
    shutil.rmtree(tmp_path / which)
    store = open_store(tmp_path, log)
    assert store.dispatched_offset == 0
    catch_up(store, log)
    assert seen(store, log) == expected(log)
    assert len(hits(store, "T0", "k0")) == 10


def test_index_file_cut_short_is_made_again(tmp_path: Path) -> None:
    log = filled(40)
    store = open_store(tmp_path, log)
    catch_up(store, log)
    store.close()
    os.truncate(min((tmp_path / "index").iterdir()), 100)
    store = open_store(tmp_path, log)
    assert store.dispatched_offset == 0
    catch_up(store, log)
    assert len(hits(store, "T0", "k0")) == 10


def test_queue_is_rebuilt_from_the_log(tmp_path: Path) -> None:
    log = filled(40)
    store = open_store(tmp_path, log)
    catch_up(store, log)
    store.close()
    path = tmp_path / "consumequeue" / "T1" / "1" / f"{0:020d}"
    path.write_bytes(b"\1" * 999)
    store = open_store(tmp_path, log)
    store.rebuild_queue("T1", 1, 0)
    assert store.dispatched_offset == 0
    catch_up(store, log)
    assert seen(store, log) == expected(log)
    store.rebuild_index()
    catch_up(store, log)
    assert len(hits(store, "T0", "k0")) == 10


def test_rebuilt_queue_without_live_records_keeps_its_end(tmp_path: Path) -> None:
    log = DispatchLog()
    for _ in range(20):
        log.append("T")
    store = open_store(tmp_path, log)
    catch_up(store, log)
    store.rebuild_queue("T", 0, log.end)
    assert store.next_offsets([("T", 0)]) == [20]
