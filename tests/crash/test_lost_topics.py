"""A power loss takes rows of topics that are not synced yet; records of theirs may be on disk."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from migration.check import check_store
from store.config import FlushMode
from store.errors import UnknownTopicError
from store.format.checkpoint import read_checkpoint
from store.format.record import unpack_record
from store.message import Message
from tests.crash.images import lose_checkpoints
from tests.support.rebuild import differences
from tests.support.stores import open_small
from tests.support.tree import copy_open

if TYPE_CHECKING:
    from pathlib import Path

    from store.message_store import MessageStore

pytestmark = pytest.mark.crash


class Image:
    """The store's files as a power loss leaves them: `meta/` as of `keep_meta`, the log of `take`.

    The write-ahead log of `meta/` loses what was not synced; the kernel wrote the log's pages.
    """

    def __init__(self, store: MessageStore, root: Path) -> None:
        self.store = store
        self.root = root

    def keep_meta(self) -> None:
        copy_open(self.store.config.root / "meta", self.root / "meta")

    def take(self) -> None:
        copy_open(self.store.config.root, self.root, shutil.ignore_patterns("meta"))


def bodies(store: MessageStore, topic: str, queue_id: int = 0) -> list[bytes]:
    pulled = store.pull(topic, queue_id, 0, max_messages=99)
    return [unpack_record(record).body for record in pulled.records]


@pytest.mark.parametrize("mode", list(FlushMode))
def test_a_topic_whose_row_is_lost_comes_back_with_its_first_record(
    tmp_path: Path, mode: FlushMode
) -> None:
    with open_small(tmp_path / "store", flush_mode=mode) as store:
        store.put([Message("Before", b"0")])
        store.flush()
        image = Image(store, tmp_path / "image")
        image.keep_meta()
        store.append(
            [
                Message("T", b"1", 0, keys=("k",), light_queues=("%LMQ%a",)),
                Message("Before", b"2"),
                Message("T", b"3", 3, light_queues=("%LMQ%a",)),
            ]
        )
        image.take()
    with open_small(tmp_path / "image", flush_mode=mode) as store:
        assert bodies(store, "T") == [b"1"]
        assert bodies(store, "T", 3) == [b"3"]
        assert bodies(store, "%LMQ%a") == [b"1", b"3"]
        assert [unpack_record(each).body for each in store.query("T", "k").records] == [b"1"]
        assert store.describe_topic("T").queue_count == 4
        store.put([Message("T", b"4")])
        assert bodies(store, "T") == [b"1", b"4"]
        assert differences(store) == []
    assert check_store(tmp_path / "image") == []


def test_more_queues_than_usual_come_back_as_far_as_records_name_them(tmp_path: Path) -> None:
    with open_small(tmp_path / "store") as store:
        image = Image(store, tmp_path / "image")
        image.keep_meta()
        store.create_topics([("T", 50)])
        store.append([Message("T", b"1", 30)])
        image.take()
    with open_small(tmp_path / "image") as store:
        assert store.describe_topic("T").queue_count == 31
        assert bodies(store, "T", 30) == [b"1"]


def test_a_deleted_topic_does_not_come_back(tmp_path: Path) -> None:
    with open_small(tmp_path / "store") as store:
        store.append([Message("T", b"1", light_queues=("%LMQ%a",))])
        store.delete_topic("T")
        image = Image(store, tmp_path / "image")
        image.keep_meta()
        image.take()
    with open_small(tmp_path / "image") as store:
        with pytest.raises(UnknownTopicError):
            store.pull("T", 0, 0)
        assert bodies(store, "%LMQ%a") == [b"1"]
        assert differences(store) == []


def test_only_the_records_behind_a_deletion_come_back(tmp_path: Path) -> None:
    with open_small(tmp_path / "store") as store:
        store.append([Message("T", b"dead")])
        store.delete_topic("T")
        image = Image(store, tmp_path / "image")
        image.keep_meta()
        store.append([Message("T", b"alive")])
        image.take()
    with open_small(tmp_path / "image") as store:
        assert bodies(store, "T") == [b"alive"]
        assert differences(store) == []
    assert check_store(tmp_path / "image") == []


def test_marks_of_deletions_stay_until_the_checkpoint_is_above_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_small(tmp_path / "store") as store:
        store.append([Message("T", b"1")])
        store.delete_topic("T")

        def full(*_: object) -> None:
            raise OSError("planted")

        with monkeypatch.context() as patch:
            patch.setattr("store.upkeep.checkpoints.write_checkpoint", full)
            with pytest.raises(OSError, match="planted"):
                store.flush()
        below = [mark.below_offset for mark in store.metadata.delete_marks()]
        assert below == [store.log.appended_offset]
        store.flush()
        assert store.metadata.delete_marks() == []
        checkpoint = read_checkpoint(tmp_path / "store" / "checkpoint")
        assert checkpoint is not None
        assert checkpoint.flushed_offset >= below[0]


def test_without_a_checkpoint_no_topic_comes_back(tmp_path: Path) -> None:
    """The mark of an old deletion is gone, and the checkpoint that says so is lost."""
    with open_small(tmp_path / "store") as store:
        store.append([Message("T", b"1")])
        store.delete_topic("T")
        store.flush()
        image = Image(store, tmp_path / "image")
        image.keep_meta()
        image.take()
    lose_checkpoints(tmp_path / "image")
    with open_small(tmp_path / "image") as store, pytest.raises(UnknownTopicError):
        store.pull("T", 0, 0)


def test_an_open_store_has_a_checkpoint_before_its_first_record(tmp_path: Path) -> None:
    with open_small(tmp_path / "store"):
        assert read_checkpoint(tmp_path / "store" / "checkpoint") is not None
