"""A lost topic table is made again from the log, and only on request."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from migration.opening import open_store
from migration.repair_metadata import repair_metadata
from migration.repair_queues import set_queues_aside
from store.config import StoreConfig
from store.errors import StoreFormatError
from store.message import Message

if TYPE_CHECKING:
    from pathlib import Path


def config(root: Path) -> StoreConfig:
    return StoreConfig(root=root, segment_bytes=1 << 20, preallocate=False)


def fill(root: Path) -> None:
    with open_store(config(root)) as store:
        store.put([Message("A", b"1", 3, tag="t"), Message("B", b"2", 0)])
        store.put([Message("A", b"3", 5, light_queues=("%LMQ%x",))])


def test_a_store_without_its_topic_table_is_refused(tmp_path: Path) -> None:
    fill(tmp_path / "s")
    shutil.rmtree(tmp_path / "s" / "meta")
    with pytest.raises(StoreFormatError, match="kvcq repair --metadata"):
        open_store(config(tmp_path / "s"))


def test_topics_come_back_with_the_queues_their_records_name(tmp_path: Path) -> None:
    root = tmp_path / "s"
    fill(root)
    shutil.rmtree(root / "meta")
    found = repair_metadata(root)
    assert [(topic.name, topic.queue_count) for topic in found] == [("A", 6), ("B", 1)]
    with open_store(config(root)) as store:
        assert store.pull("A", 3, 0).records
        assert store.put([Message("B", b"4", 0)]).placed[0].queue_offset == 1
        assert store.pull("%LMQ%x", 0, 0).records


def test_a_damaged_table_is_kept_under_another_name(tmp_path: Path) -> None:
    root = tmp_path / "s"
    fill(root)
    (root / "meta" / "CURRENT").write_bytes(b"rubbish")
    repair_metadata(root)
    assert (root / "meta.damaged-1").is_dir()
    with open_store(config(root)) as store:
        assert [topic.name for topic in store.list_topics("", None, 10)] == ["A", "B"]


def test_a_table_that_opens_is_not_replaced(tmp_path: Path) -> None:
    fill(tmp_path / "s")
    with pytest.raises(StoreFormatError, match="not replaced"):
        repair_metadata(tmp_path / "s")


def test_queues_set_aside_are_made_again_from_the_log(tmp_path: Path) -> None:
    root = tmp_path / "s"
    fill(root)
    aside = set_queues_aside(root)
    assert aside.path is not None
    assert aside.path.is_dir()
    assert aside.damage == []
    with open_store(config(root)) as store:
        assert store.pull("A", 5, 0).records
        assert [tuple(each) for each in store.bounds([("A", 3), ("A", 5)])] == [(0, 1), (0, 1)]
