"""A crash takes what of the database was not written yet: topics and groups come back exactly."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from store.config import FlushMode
from store.errors import UnknownTopicError
from store.format.checkpoint import read_checkpoint
from store.format.record import unpack_record
from store.message import Message
from store.metadata import Retention
from tests.crash.images import lose_checkpoints
from tests.support.checked import assert_whole
from tests.support.rebuild import differences
from tests.support.stores import open_small
from tests.support.tree import copy_open

if TYPE_CHECKING:
    from pathlib import Path

    from store.message_store import MessageStore

pytestmark = pytest.mark.crash


class Image:
    """The store's files as a power loss leaves them: `kvcq/` as of `keep_database`, the log of
    `take`. What RocksDB did not flush is lost; the kernel wrote the log's pages."""

    def __init__(self, store: MessageStore, root: Path) -> None:
        self.store = store
        self.root = root

    def keep_database(self) -> None:
        self.store.queues.flush()
        copy_open(self.store.config.root / "kvcq", self.root / "kvcq")

    def take(self) -> None:
        copy_open(self.store.config.root, self.root, shutil.ignore_patterns("kvcq"))


def bodies(store: MessageStore, topic: str, queue_id: int = 0) -> list[bytes]:
    pulled = store.pull(topic, queue_id, 0, max_messages=99)
    return [unpack_record(record).body for record in pulled.records]


@pytest.mark.parametrize("mode", list(FlushMode))
def test_a_topic_whose_row_is_lost_comes_back_as_it_was(tmp_path: Path, mode: FlushMode) -> None:
    with open_small(tmp_path / "store", flush_mode=mode) as store:
        store.put([Message("Before", b"0")])
        store.flush()
        image = Image(store, tmp_path / "image")
        image.keep_database()
        store.put(
            [
                Message("T", b"1", 0, keys=("k",), light_queues=("%LMQ%a",)),
                Message("Before", b"2"),
                Message("T", b"3", 3, light_queues=("%LMQ%a",)),
            ]
        )
        store.create_topics([("Made", 50)], {"Made": Retention(messages=9)})
        store.put([Message("Made", b"1", 30)])
        store.keep("T", time_ms=5000)
        store.commit_offsets("g", [("T", 0, 1), ("%LMQ%a", 0, 2)])
        store.commit_offsets("h", [("T", 0, 1)])
        store.delete_group("h")
        topics = store.list_topics("", None, 9)
        image.take()
    with open_small(tmp_path / "image", flush_mode=mode) as store:
        assert store.list_topics("", None, 9) == topics
        assert bodies(store, "T") == [b"1"]
        assert bodies(store, "T", 3) == [b"3"]
        assert bodies(store, "Made", 30) == [b"1"]
        assert bodies(store, "%LMQ%a") == [b"1", b"3"]
        assert [unpack_record(each).body for each in store.query("T", "k").records] == [b"1"]
        assert store.list_groups(None, 9) == ["g"]
        assert store.list_committed("g", None, 9) == [("T", 0, 1), ("%LMQ%a", 0, 2)]
        store.put([Message("T", b"4")])
        assert bodies(store, "T") == [b"1", b"4"]
        assert differences(store) == []
    assert_whole(tmp_path / "image")


@pytest.mark.parametrize("is_kept_before", [False, True])
def test_a_deleted_topic_does_not_come_back(tmp_path: Path, is_kept_before: bool) -> None:
    with open_small(tmp_path / "store") as store:
        store.put([Message("T", b"1", light_queues=("%LMQ%a",))])
        image = Image(store, tmp_path / "image")
        if is_kept_before:
            image.keep_database()
        store.delete_topic("T")
        if not is_kept_before:
            image.keep_database()
        image.take()
    with open_small(tmp_path / "image") as store:
        with pytest.raises(UnknownTopicError):
            store.pull("T", 0, 0)
        assert bodies(store, "%LMQ%a") == [b"1"]
        assert differences(store) == []


@pytest.mark.parametrize("name", ["T", "%LMQ%a"])
def test_only_the_records_behind_a_deletion_come_back(tmp_path: Path, name: str) -> None:
    with open_small(tmp_path / "store") as store:
        store.put([Message("T", b"dead", light_queues=("%LMQ%a",))])
        store.commit_offsets("g", [(name, 0, 1)])
        image = Image(store, tmp_path / "image")
        image.keep_database()
        store.delete_topic(name)
        store.put([Message("T", b"alive", light_queues=("%LMQ%a",))])
        image.take()
    with open_small(tmp_path / "image") as store:
        assert bodies(store, name) == [b"alive"]
        assert store.committed_offsets("g", [(name, 0)]) == [None]
        assert differences(store) == []
    assert_whole(tmp_path / "image")


def test_without_a_checkpoint_no_topic_comes_back(tmp_path: Path) -> None:
    with open_small(tmp_path / "store") as store:
        store.put([Message("T", b"1")])
        store.delete_topic("T")
        store.flush()
        copy_open(tmp_path / "store", tmp_path / "image")
    lose_checkpoints(tmp_path / "image")
    with open_small(tmp_path / "image") as store, pytest.raises(UnknownTopicError):
        store.pull("T", 0, 0)


def test_an_open_store_has_a_checkpoint_before_its_first_record(tmp_path: Path) -> None:
    with open_small(tmp_path / "store"):
        assert read_checkpoint(tmp_path / "store" / "checkpoint") is not None
