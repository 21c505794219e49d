"""Topics that come and go, and what groups have committed."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from kvcq.errors import EngineBusyError
from store.config import FlushMode
from store.errors import (
    FlushTimeoutError,
    InvalidArgumentError,
    OffsetOutOfRangeError,
    TopicExistsError,
    UnknownQueueError,
    UnknownTopicError,
)
from store.log.watermark import Watermark
from store.message import Message
from store.metadata import Retention
from tests.support.dispatching import until_met
from tests.support.rebuild import differences, live_engine
from tests.support.stores import bodies, open_small

if TYPE_CHECKING:
    from pathlib import Path

    from kvcq.engine.protocol import KvBatch
    from store.message_store import MessageStore
    from tests.support.fake_clock import FakeClock


def test_who_creates_topics_waits_for_the_disk_without_holding_up_appends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_small(tmp_path / "store") as store:
        wait = store._appends.wait_durable
        appended: list[int] = []

        def slow(end: int) -> None:
            assert not store.log.lock.locked()
            appended.append(store.append([Message("T", b"x")]).requests[0].queue_offset)
            wait(end)

        monkeypatch.setattr(store._appends, "wait_durable", slow)
        assert [topic.name for topic in store.create_topics([("T", 1)])] == ["T"]
        assert appended == [0]
        assert store.flushed_offset > 0  # in ASYNC mode, too


def test_creating_topics(store: MessageStore) -> None:
    assert [topic.queue_count for topic in store.create_topics([("A", 2), ("B", 0)])] == [2, 4]
    store.create_topics([("A", 2)])  # repeatable
    with pytest.raises(TopicExistsError):
        store.create_topics([("C", 1), ("A", 3)])
    with pytest.raises(UnknownTopicError):
        store.describe_topic("C")  # all or none
    for bad in ([("a b", 1)], [("A", -1)], [("A", 1 << 20)], [("D", 1), ("D", 2)]):
        with pytest.raises(InvalidArgumentError, match=r"topics\[\d\]"):
            store.create_topics(bad)
    assert [topic.name for topic in store.list_topics("", None, 10)] == ["A", "B"]
    assert [topic.name for topic in store.list_topics("", "A", 10)] == ["B"]
    assert [topic.name for topic in store.list_topics("A", None, 10)] == ["A"]


def test_p9_a_deleted_topic_leaves_nothing_and_comes_back_clean(
    tmp_path: Path, clock: FakeClock
) -> None:
    root = tmp_path / "store"
    with open_small(root, clock) as store:
        store.put([Message("T", b"old", 1, keys=("k",)), Message("U", b"x", keys=("k",))])
        store.commit_offsets("g", [("T", 1, 1), ("U", 0, 1)])
        store.delete_topic("T")
        with pytest.raises(UnknownTopicError):
            store.pull("T", 1, 0)
        assert store.committed_offsets("g", [("T", 1), ("U", 0)]) == [None, 1]
        assert [
            key for key in live_engine(store).scan("default", b"", b"\xff") if b"T" in key[0]
        ] == []
        store.put([Message("T", b"new", 1, keys=("k",))])
        assert bodies(store.pull("T", 1, 0).records) == [b"new"]
        assert bodies(store.query("T", "k").records) == [b"new"]
        assert differences(store) == []
        with pytest.raises(UnknownTopicError):
            store.delete_topic("none")
    # Neither a clean opening nor one without the database brings the old one back.
    with open_small(root, clock) as store:
        assert bodies(store.pull("T", 1, 0).records) == [b"new"]
    (root / "kvcq").rename(root / "gone")
    with open_small(root, clock) as store:
        assert bodies(store.pull("T", 1, 0).records) == [b"new"]
        assert bodies(store.query("T", "k").records) == [b"new"]
        assert differences(store) == []


def test_a_deleted_light_queue_starts_anew(store: MessageStore) -> None:
    message = Message("T", b"x", light_queues=("%LMQ%a",))
    store.put([message] * 3)
    store.commit_offsets("g", [("%LMQ%a", 0, 2)])
    store.delete_topic("%LMQ%a")
    with pytest.raises(UnknownTopicError):
        store.pull("%LMQ%a", 0, 0)
    with pytest.raises(UnknownTopicError):
        store.delete_topic("%LMQ%a")
    assert store.list_light_queues("", None, 9) == []
    assert store.put([message]).placed[0].light_queue_offsets == (0,)
    assert store.bounds([("T", 0)])[0].max_offset == 4


def test_a_deletion_that_meets_a_stall_is_finished(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put([Message("T", b"old")])
    engine = live_engine(store)
    write = engine.write
    stalls = iter(range(3))

    def stalling(batch: KvBatch) -> None:
        if (batch.deletes or batch.delete_ranges) and next(stalls, None) is not None:
            raise EngineBusyError("planted")
        write(batch)

    monkeypatch.setattr(engine, "write", stalling)
    store.delete_topic("T")
    store.put([Message("T", b"new")])
    assert bodies(store.pull("T", 0, 0).records) == [b"new"]


def test_a_deletion_that_dispatch_does_not_reach_counts_all_the_same(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in the log: whoever puts behind it begins a new topic, in this process or the next."""
    root = tmp_path / "store"
    with open_small(root, clock) as store:
        store.put([Message("T", b"old"), Message("U", b"x")])
        store.commit_offsets("g", [("T", 0, 1)])
        engine = live_engine(store)
        write = engine.write
        met = threading.Event()

        def stalling(batch: KvBatch) -> None:
            if batch.deletes or batch.delete_ranges:
                met.set()
                raise EngineBusyError("planted")
            write(batch)

        monkeypatch.setattr(engine, "write", stalling)
        with monkeypatch.context() as patch:
            patch.setattr(Watermark, "wait_for", until_met(met))
            with pytest.raises(FlushTimeoutError):
                store.delete_topic("T")
        assert store.append([Message("T", b"new")]).requests[0].queue_offset == 0
        with pytest.raises(TopicExistsError):
            store.create_topics([("T", 1)])
        assert store.append([Message("U", b"y")]).requests[0].queue_offset == 1
    with open_small(root, clock) as store:
        assert bodies(store.pull("T", 0, 0).records) == [b"new"]
        assert store.committed_offsets("g", [("T", 0)]) == [None]
        assert bodies(store.pull("U", 0, 0).records) == [b"x", b"y"]
        assert differences(store) == []


@pytest.mark.parametrize("mode", FlushMode)
def test_administration_is_durable_when_it_is_answered(
    tmp_path: Path, clock: FakeClock, mode: FlushMode
) -> None:
    root = tmp_path / "store"
    with open_small(root, clock, flush_mode=mode) as store:
        made = store.create_topics([("A", 2), ("B", 1)], {"B": Retention(messages=3)})
        assert store.flushed_offset == store.log.appended_offset
        kept = store.keep("A", messages=5)
        assert store.flushed_offset == store.log.appended_offset
        store.put([Message("A", b"x")])
        store.commit_offsets("g", [("A", 0, 1)])
        store.delete_group("g")
        assert store.flushed_offset == store.log.appended_offset
        store.delete_topic("B")
        assert store.flushed_offset == store.log.appended_offset
        assert store.list_topics("", None, 9) == [kept]
        assert kept == made[0]._replace(retention=Retention(messages=5))


def test_what_a_call_repeats_makes_no_record(store: MessageStore) -> None:
    store.create_topics([("A", 2)])
    store.keep("A", messages=5)
    end = store.log.appended_offset
    store.create_topics([("A", 2)])
    store.keep("A", messages=5)
    store.delete_group("none")
    assert store.log.appended_offset == end


@pytest.mark.parametrize("group", ["CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_KVCQ_TAKEN"])
def test_a_group_that_says_what_a_broker_delivered_is_not_deleted(
    store: MessageStore, group: str
) -> None:
    store.create_topics([("A", 1)])
    store.commit_offsets(group, [("A", 0, 0)])
    with pytest.raises(InvalidArgumentError, match="is a system group") as refused:
        store.delete_group(group)
    assert refused.value.field == "group"
    assert store.committed_offsets(group, [("A", 0)]) == [0]


def test_a_topic_is_made_before_its_first_message(store: MessageStore) -> None:
    done = store.put([Message("A", b"x"), Message("B", b"y"), Message("A", b"z", 1)])
    first = min(request.physical_offset for request in done.requests)
    for name in ("A", "B"):
        assert store.describe_topic(name).created_offset < first
    end = store.log.appended_offset
    done = store.put([Message("A", b"x")])
    assert done.requests[0].physical_offset == end  # nothing before it this time


def test_a_group_that_commits_in_two_queues_at_once_is_made_once(store: MessageStore) -> None:
    store.put([Message("T", b"x"), Message("T", b"x", 1)])
    with ThreadPoolExecutor() as pool:
        for _ in range(20):
            list(pool.map(lambda q: store.commit_offsets("g", [("T", q, 1)]), (0, 1)))
            assert store.list_committed("g", None, 9) == [("T", 0, 1), ("T", 1, 1)]
            store.delete_group("g")
            assert store.list_groups(None, 9) == []
            assert store.list_committed("g", None, 9) == []


def test_groups(store: MessageStore) -> None:
    store.put([Message("T", b"x")] * 3)
    store.commit_offsets("g", [("T", 0, 2), ("T", 1, 0)])
    assert store.list_committed("g", None, 9) == [("T", 0, 2), ("T", 1, 0)]
    assert store.list_groups(None, 9) == ["g"]
    for offset in (-1, 4):
        with pytest.raises(OffsetOutOfRangeError):
            store.commit_offsets("g", [("T", 0, offset)])
    with pytest.raises(UnknownQueueError):
        store.commit_offsets("g", [("T", 9, 0)])
    with pytest.raises(InvalidArgumentError):
        store.commit_offsets("", [])
    store.delete_group("g")
    assert store.committed_offsets("g", [("T", 0)]) == [None]
    assert store.list_groups(None, 9) == []
