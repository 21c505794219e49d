"""The store as a whole, through its front: put, pull, light queues."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from kvcq.engine.protocol import KvBatch
from kvcq.tables.keys import UNITS, unit_key
from store.errors import (
    DamagedQueueError,
    InvalidArgumentError,
    OffsetOutOfRangeError,
    UnknownQueueError,
    UnknownTopicError,
)
from store.format.record import unpack_record
from store.message import Message, PullStatus
from tests.support.rebuild import differences, live_engine
from tests.support.stores import SEGMENT_BYTES, bodies, open_small
from tests.support.tree import copy_open

if TYPE_CHECKING:
    from pathlib import Path

    from store.message_store import MessageStore
    from tests.support.fake_clock import FakeClock


def test_what_is_put_is_pulled(store: MessageStore) -> None:
    done = store.put([Message("T", b"a", tag="x"), Message("T", b"b"), Message("T", b"c", 1)])
    assert [(placed.queue_id, placed.queue_offset) for placed in done.placed] == [
        (0, 0),
        (0, 1),
        (1, 0),
    ]
    pulled = store.pull("T", 0, 0)
    assert pulled.status is PullStatus.FOUND
    assert bodies(pulled.records) == [b"a", b"b"]
    assert pulled.queue_offsets == [0, 1]
    assert (pulled.next_offset, pulled.min_offset, pulled.max_offset) == (2, 0, 2)
    assert unpack_record(store.get(done.placed[2].physical_offset)).body == b"c"


def test_the_end_of_a_queue_is_not_an_error(store: MessageStore) -> None:
    store.create_topics([("T", 2)])
    assert store.pull("T", 1, 0).status is PullStatus.NO_NEW_MESSAGE
    store.put([Message("T", b"a")])
    pulled = store.pull("T", 0, 1)
    assert (pulled.status, list(pulled.records)) == (PullStatus.NO_NEW_MESSAGE, [])
    assert pulled.next_offset == 1


def test_errors_of_a_pull(store: MessageStore) -> None:
    store.put([Message("T", b"a")])
    for offset in (-1, 2):
        with pytest.raises(OffsetOutOfRangeError) as caught:
            store.pull("T", 0, offset)
        assert (caught.value.min_offset, caught.value.max_offset) == (0, 1)
    with pytest.raises(UnknownTopicError):
        store.pull("none", 0, 0)
    with pytest.raises(UnknownQueueError):
        store.pull("T", 4, 0)
    with pytest.raises(UnknownTopicError):
        store.pull("%LMQ%none", 0, 0)
    for field, limits in (("max_messages", (0, 1)), ("max_bytes", (1, 0))):
        with pytest.raises(InvalidArgumentError, match=field):
            store.pull("T", 0, 0, max_messages=limits[0], max_bytes=limits[1])


def test_errors_of_a_put_write_nothing(store: MessageStore) -> None:
    store.create_topics([("T", 2)])
    end = store.log.appended_offset
    good = Message("T", b"x")
    for bad, field in (
        (Message("", b""), "topic"),
        (Message("a/b", b""), "topic"),
        (Message("%LMQ%a", b""), "topic"),
        (Message("T", b"x" * (5 << 20)), "body"),
        (Message("T", b"", queue_id=-1), "queue_id"),
        (Message("T", b"", born_host=("nowhere", 1)), "born_host"),
        (Message("T", b"x" * SEGMENT_BYTES), "body"),
    ):
        with pytest.raises(InvalidArgumentError) as caught:
            store.put([good, bad])
        assert caught.value.field == f"messages[1].{field}"
    with pytest.raises(UnknownQueueError):
        store.put([good, Message("T", b"", queue_id=2)])
    with pytest.raises(InvalidArgumentError, match="messages"):
        store.put([])
    assert store.log.appended_offset == end
    assert store.put([good]).placed[0].queue_offset == 0


def test_topics_are_made_only_where_that_is_allowed(tmp_path: Path) -> None:
    with open_small(tmp_path / "store", auto_create_topics=False) as store:
        with pytest.raises(UnknownTopicError):
            store.put([Message("T", b"x")])
        store.create_topics([("T", 0)])
        store.put([Message("T", b"x")])
        assert store.describe_topic("T").queue_count == 4


def test_pull_keeps_to_its_limits(store: MessageStore) -> None:
    store.put([Message("T", b"x" * 100) for _ in range(100)])
    assert len(store.pull("T", 0, 0, max_messages=7).records) == 7
    size = len(store.pull("T", 0, 0).records[0])
    assert len(store.pull("T", 0, 0, max_bytes=3 * size).records) == 3
    assert len(store.pull("T", 0, 0, max_bytes=3 * size - 1).records) == 2
    assert len(store.pull("T", 0, 0, max_bytes=1).records) == 1  # one, if there is one


def test_pull_by_tag(store: MessageStore) -> None:
    # Aa and BB share their Java hash: the record decides.
    tags = ["Aa", "BB", "c", "", "BB"]
    store.put([Message("T", tag.encode(), tag=tag) for tag in tags * 3])
    assert bodies(store.pull("T", 0, 0, tag_filter="BB").records) == [b"BB"] * 6
    assert bodies(store.pull("T", 0, 0, tag_filter="c || Aa").records) == [b"Aa", b"c"] * 3
    pulled = store.pull("T", 0, 0, tag_filter="none")
    assert (pulled.status, pulled.next_offset) == (PullStatus.NO_MATCH, 15)
    found: list[int] = []
    at = 0
    while at < 15:
        pulled = store.pull("T", 0, at, tag_filter="BB", max_messages=2)
        assert len(pulled.records) <= 2
        assert pulled.next_offset > at
        found += pulled.queue_offsets
        at = pulled.next_offset
    assert found == [1, 4, 6, 9, 11, 14]
    assert len(store.pull("T", 0, 0, tag_filter="*").records) == 15
    with pytest.raises(InvalidArgumentError, match="tag_filter"):
        store.pull("T", 0, 0, tag_filter="a || ")


def test_a_message_stands_in_all_its_light_queues(store: MessageStore) -> None:
    names = tuple(f"%LMQ%{n}" for n in range(20))
    done = store.put([Message("T", b"a", light_queues=names), Message("T", b"b", 1)])
    assert done.placed[0].light_queue_offsets == (0,) * 20
    store.put([Message("T", b"c", light_queues=names[:1])])
    assert bodies(store.pull("%LMQ%0", 0, 0).records) == [b"a", b"c"]
    assert store.pull("%LMQ%0", 0, 0).queue_offsets == [0, 1]
    assert [store.bounds([(name, 0)])[0].max_offset for name in names] == [2] + [1] * 19
    assert store.list_light_queues("", None, 100) == sorted(names, key=lambda n: (len(n), n))
    with pytest.raises(UnknownQueueError):
        store.pull("%LMQ%0", 1, 0)


def test_p10_light_queue_offsets_are_unique_under_concurrent_producers(store: MessageStore) -> None:
    taken: list[int] = []

    def produce(number: int) -> None:
        for _ in range(40):
            done = store.put(
                [Message("T", b"x", queue_id=number, light_queues=("%LMQ%a", f"%LMQ%{number}"))] * 2
            )
            taken.extend(placed.light_queue_offsets[0] for placed in done.placed)

    threads = [threading.Thread(target=produce, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == list(range(320))
    assert len(store.pull("%LMQ%a", 0, 0, max_messages=1000).records) == 320


def test_light_queues_outlive_the_topic_that_carried_them(tmp_path: Path, clock: FakeClock) -> None:
    root, image = tmp_path / "store", tmp_path / "image"
    with open_small(root, clock) as store:
        for body in (b"a", b"b"):
            store.put([Message("T", body, light_queues=("%LMQ%a", "%LMQ%b"))])
        store.delete_topic("T")
        assert bodies(store.pull("%LMQ%a", 0, 0).records) == [b"a", b"b"]
        store.put([Message("U", b"c", light_queues=("%LMQ%a",))])
        assert differences(store) == []
        store.flush()
        copy_open(root, image)  # nothing of the queues is flushed
    # A replay finds the same: no hole, no offset given out twice.
    with open_small(image, clock) as store:
        assert bodies(store.pull("%LMQ%a", 0, 0).records) == [b"a", b"b", b"c"]
        assert bodies(store.pull("%LMQ%b", 0, 0).records) == [b"a", b"b"]
        assert differences(store) == []


def test_a_missing_unit_is_damage_and_is_made_again(tmp_path: Path) -> None:
    with open_small(tmp_path / "store") as store:
        store.put([Message("T", b"%d" % n, light_queues=("%LMQ%a",)) for n in range(9)])
        for topic, lost in (("T", [4]), ("T", [8]), ("T", range(9)), ("%LMQ%a", range(9))):
            keys = [(UNITS, unit_key(topic, 0, offset)) for offset in lost]
            live_engine(store).write(KvBatch(deletes=keys))
            assert differences(store) != []
            with pytest.raises(DamagedQueueError):
                store.pull(topic, 0, lost[0])
            store._services.repair.wait()
            assert len(store.pull(topic, 0, 0).records) == 9
            assert differences(store) == []
        assert store.statistics()["store.queue_repairs"] == 4


def test_first_units_made_again_are_seen(tmp_path: Path) -> None:
    # Missing first units look like expired ones, but the log has their records.
    with open_small(tmp_path / "store") as store:
        store.put([Message("T", b"x")] * 3)
        live_engine(store).write(KvBatch(deletes=[(UNITS, unit_key("T", 0, 0))]))
        assert store.queues.bounds("T", 0, 0).min_offset == 1
        store._services.repair.start("T", 0)
        store._services.repair.wait()
        assert store.queues.bounds("T", 0, 0).min_offset == 0
