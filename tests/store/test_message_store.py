"""The store as a whole, through its front."""

from __future__ import annotations

import errno
import os
import queue
import threading
from typing import TYPE_CHECKING

import pytest

from kvcq.consume_queue_store import KvConsumeQueueStore
from kvcq.engine.protocol import KvBatch
from kvcq.errors import EngineBusyError, EngineFailedError
from kvcq.tables.keys import UNITS, unit_key
from store.config import FlushMode
from store.consume_queue import Boundary
from store.errors import (
    DamagedQueueError,
    FlushError,
    FlushTimeoutError,
    InvalidArgumentError,
    MessageNotFoundError,
    OffsetOutOfRangeError,
    StoreBusyError,
    StoreClosedError,
    StoreFailedError,
    StoreLockedError,
    TopicExistsError,
    UnknownQueueError,
    UnknownTopicError,
)
from store.format.checkpoint import Checkpoint, read_checkpoint
from store.format.record import unpack_record
from store.message import Message, PullStatus
from tests.support.checked import checked
from tests.support.fake_clock import FakeClock
from tests.support.rebuild import differences, live_engine
from tests.support.stores import SEGMENT_BYTES, open_small

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from store.message_store import MessageStore


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock, damaged: bool) -> Iterator[MessageStore]:
    with checked(open_small(tmp_path / "store", clock), damaged=damaged) as opened:
        yield opened
        assert differences(opened) == []


def bodies(records: list[bytes]) -> list[bytes]:
    return [unpack_record(record).body for record in records]


# --- put and pull -----------------------------------------------------------------------------


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
    assert (pulled.status, pulled.records, pulled.next_offset) == (PullStatus.NO_NEW_MESSAGE, [], 1)


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


# --- light queues (P10) -----------------------------------------------------------------------


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
    root = tmp_path / "store"
    with open_small(root, clock) as store:
        for body in (b"a", b"b"):
            store.put([Message("T", body, light_queues=("%LMQ%a", "%LMQ%b"))])
        store.delete_topic("T")
        assert bodies(store.pull("%LMQ%a", 0, 0).records) == [b"a", b"b"]
        store.put([Message("U", b"c", light_queues=("%LMQ%a",))])
        assert differences(store) == []
        live_engine(store).close()  # nothing of the queues is flushed
    # A replay finds the same: no hole, no offset given out twice.
    with open_small(root, clock) as store:
        assert bodies(store.pull("%LMQ%a", 0, 0).records) == [b"a", b"b", b"c"]
        assert bodies(store.pull("%LMQ%b", 0, 0).records) == [b"a", b"b"]
        assert differences(store) == []


# --- query and search -------------------------------------------------------------------------


def test_p12_query_by_key_pages_stably_while_others_write(
    store: MessageStore, clock: FakeClock
) -> None:
    for number in range(10):
        store.put([Message("T", b"%d" % number, keys=("k", f"k{number}"))])
        store.put([Message("U", b"other topic", keys=("k",))])
        clock.advance(0.5)
    found: list[bytes] = []
    cursor = None
    while True:
        page = store.query("T", "k", limit=3, cursor=cursor)
        found += bodies(page.records)
        if page.complete:
            break
        cursor = page.cursor
        if len(found) < 10:
            store.put([Message("T", b"%d" % (len(found) // 3 + 9), keys=("k",))])
    assert found == [b"%d" % number for number in range(len(found))]
    assert bodies(store.query("T", "k7").records) == [b"7"]
    assert store.query("T", "nothing").records == []
    with pytest.raises(UnknownTopicError):
        store.query("none", "k")
    with pytest.raises(InvalidArgumentError, match="limit"):
        store.query("T", "k", limit=0)
    with pytest.raises(InvalidArgumentError, match="begin_ms"):
        store.query("T", "k", begin_ms=-1)
    with pytest.raises(InvalidArgumentError, match="end_ms"):
        store.query("T", "k", end_ms=-1)
    with pytest.raises(InvalidArgumentError, match="cursor"):
        store.query("T", "k", cursor=b"x")


def test_query_by_key_within_times(store: MessageStore, clock: FakeClock) -> None:
    start = clock.now_ms()
    for number in range(5):
        store.put([Message("T", b"%d" % number, keys=("k",))])
        clock.advance(1)
    found = store.query("T", "k", begin_ms=start + 1000, end_ms=start + 3000)
    assert bodies(found.records) == [b"1", b"2", b"3"]  # inclusive
    assert bodies(store.query("T", "k", begin_ms=start + 3001).records) == [b"4"]


def test_p12_keys_with_one_java_hash_do_not_mix(store: MessageStore) -> None:
    store.put([Message("T", b"1", keys=("Aa",)), Message("T", b"2", keys=("BB",))])
    assert bodies(store.query("T", "Aa").records) == [b"1"]


def test_search_by_time(store: MessageStore, clock: FakeClock) -> None:
    start = clock.now_ms()
    for _ in range(3):
        store.put([Message("T", b"x")])
        clock.advance(2)
    for time_ms, lower, upper in (
        (start - 1, 0, 0),
        (start, 0, 0),
        (start + 1, 1, 0),
        (start + 4000, 2, 2),
        (start + 4001, 3, 2),
    ):
        assert store.search_time("T", 0, time_ms, Boundary.LOWER) == lower
        assert store.search_time("T", 0, time_ms, Boundary.UPPER) == upper
    with pytest.raises(UnknownTopicError):
        store.search_time("none", 0, 0, Boundary.LOWER)


def test_get_finds_records_alone(store: MessageStore) -> None:
    place = store.put([Message("T", b"x" * 200)]).placed[0].physical_offset
    assert len(store.get(place)) > 200
    for offset in (-1, place + 1, store.log.appended_offset, 1 << 50):
        with pytest.raises(MessageNotFoundError):
            store.get(offset)
    store.delete_topic("T")
    with pytest.raises(MessageNotFoundError, match="deleted"):
        store.get(place)


# --- topics and groups (P9) -------------------------------------------------------------------


def test_who_creates_topics_waits_for_the_disk_without_holding_up_appends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_small(tmp_path / "store") as store:
        store.create_topics([("other", 1)])
        sync = store.metadata.sync
        appended: list[int] = []

        def slow() -> None:
            assert not store.log.lock.locked()
            if not appended:
                appended.append(store.append([Message("T", b"x")]).requests[0].queue_offset)
            sync()

        monkeypatch.setattr(store.metadata, "sync", slow)
        assert [topic.name for topic in store.create_topics([("T", 1)])] == ["T"]
        assert appended == [0]


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


def test_a_deletion_that_fails_keeps_writers_out_until_it_is_finished(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    monkeypatch.setattr("store.busy._TRIES", 2)
    with open_small(root, clock) as store:
        store.put([Message("T", b"old"), Message("U", b"x")])
        engine = live_engine(store)
        write = engine.write

        def stalling(batch: KvBatch) -> None:
            if batch.deletes or batch.delete_ranges:
                raise EngineBusyError("planted")
            write(batch)

        monkeypatch.setattr(engine, "write", stalling)
        with pytest.raises(StoreBusyError):
            store.delete_topic("T")
        with pytest.raises(StoreBusyError):
            store.put([Message("T", b"new")])
        with pytest.raises(StoreBusyError):
            store.create_topics([("T", 1)])
        store.put([Message("U", b"y")])
    with open_small(root, clock) as store:
        with pytest.raises(UnknownTopicError):
            store.describe_topic("T")
        store.put([Message("T", b"new")])
        assert bodies(store.pull("T", 0, 0).records) == [b"new"]
        assert differences(store) == []


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


# --- damage (P8) ------------------------------------------------------------------------------


def test_a_missing_unit_is_damage_and_is_made_again(tmp_path: Path) -> None:
    with open_small(tmp_path / "store") as store:
        store.put([Message("T", b"%d" % n, light_queues=("%LMQ%a",)) for n in range(9)])
        for topic, lost in (("T", [4]), ("T", [8]), ("T", range(9)), ("%LMQ%a", range(9))):
            keys = [(UNITS, unit_key(topic, 0, offset)) for offset in lost]
            live_engine(store).write(KvBatch(deletes=keys))
            assert differences(store) != []
            with pytest.raises(DamagedQueueError):
                store.pull(topic, 0, lost[0])
            store._repair.wait()
            assert len(store.pull(topic, 0, 0).records) == 9
            assert differences(store) == []
        assert store.statistics()["store.queue_repairs"] == 4


def test_first_units_made_again_are_seen(tmp_path: Path) -> None:
    # Missing first units look like expired ones, but the log has their records.
    with open_small(tmp_path / "store") as store:
        store.put([Message("T", b"x")] * 3)
        live_engine(store).write(KvBatch(deletes=[(UNITS, unit_key("T", 0, 0))]))
        assert store.queues.bounds("T", 0, 0).min_offset == 1
        store._repair.start("T", 0)
        store._repair.wait()
        assert store.queues.bounds("T", 0, 0).min_offset == 0


# --- durability and end -----------------------------------------------------------------------


def test_sync_puts_are_visible_when_they_are_durable(tmp_path: Path) -> None:
    with open_small(tmp_path / "store", flush_mode=FlushMode.SYNC) as store:
        done = store.put([Message("T", b"x")])
        assert store.is_durable(done.end_offset)
        assert store.flushed_offset == done.end_offset
        assert len(store.pull("T", 0, 0).records) == 1


def test_p5_nothing_is_visible_before_its_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    flush = os.fdatasync

    def slow(descriptor: int) -> None:
        go_on.wait(30)
        flush(descriptor)

    with open_small(tmp_path / "store", flush_mode=FlushMode.SYNC) as store:
        store.create_topics([("T", 1)])
        grown: list[set[tuple[str, int]]] = []
        store.on_dispatch(grown.append)
        monkeypatch.setattr(os, "fdatasync", slow)
        done = store.append([Message("T", b"x", keys=("k",), light_queues=("%LMQ%a",))])
        told = threading.Event()
        store.when_durable(done.end_offset, lambda _error: told.set())
        assert not store.is_durable(done.end_offset)
        assert not told.is_set()
        assert store.pull("T", 0, 0).status is PullStatus.NO_NEW_MESSAGE
        assert store.query("T", "k").records == []
        with pytest.raises(UnknownTopicError):
            store.pull("%LMQ%a", 0, 0)
        with pytest.raises(MessageNotFoundError):
            store.get(done.placed[0].physical_offset)
        assert grown == []
        go_on.set()
        assert told.wait(30)
        assert store.is_durable(done.end_offset)
        assert len(store.pull("T", 0, 0).records) == 1
        assert store.get(done.placed[0].physical_offset)
        assert grown == [{("T", 0), ("%LMQ%a", 0)}]


def test_a_put_that_is_not_flushed_in_time_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    flush = os.fdatasync

    def slow(descriptor: int) -> None:
        go_on.wait(30)
        flush(descriptor)

    with open_small(
        tmp_path / "store", flush_mode=FlushMode.SYNC, sync_flush_timeout_s=0.01
    ) as store:
        store.create_topics([("T", 1)])
        monkeypatch.setattr(os, "fdatasync", slow)
        with pytest.raises(FlushTimeoutError):
            store.put([Message("T", b"x")])
        go_on.set()


def test_a_failed_fsync_ends_writing_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError(errno.EIO, "planted")

    root = tmp_path / "store"
    store = open_small(root, flush_mode=FlushMode.SYNC)
    before = store.put([Message("T", b"kept")])
    monkeypatch.setattr(os, "fdatasync", fail)
    done = store.append([Message("T", b"lost")])
    told: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
    store.when_durable(done.end_offset, told.put)
    assert isinstance(told.get(timeout=30), FlushError)
    with pytest.raises(StoreFailedError):
        store.put([Message("T", b"more")])
    with pytest.raises(StoreFailedError):
        store.create_topics([("U", 1)])
    assert bodies(store.pull("T", 0, 0).records) == [b"kept"]  # reads go on
    monkeypatch.undo()
    with pytest.raises(FlushError):
        store.flush()  # never tried again as if nothing had happened
    store.close()
    assert (root / "abort").exists()
    with open_small(root, flush_mode=FlushMode.SYNC) as store:
        assert bodies(store.pull("T", 0, 0).records)[:1] == [b"kept"]
        assert store.get(before.placed[0].physical_offset)
        store.put([Message("T", b"again")])


def test_a_dispatch_that_fails_ends_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    store = open_small(root)
    store.put([Message("T", b"a")])
    engine = live_engine(store)

    def fail(_batch: KvBatch) -> None:
        raise EngineFailedError("planted")

    monkeypatch.setattr(engine, "write", fail)
    store.put([Message("T", b"b")])  # acknowledged when appended
    with pytest.raises(StoreFailedError, match="planted"):
        store.put([Message("T", b"c")])
    monkeypatch.undo()
    store.close()
    with open_small(root) as store:
        assert bodies(store.pull("T", 0, 0).records) == [b"a", b"b"]
        assert differences(store) == []


def test_a_stalled_dispatch_is_made_up_for(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = live_engine(store)
    write = engine.write
    stalls = iter(range(5))

    def stalling(batch: KvBatch) -> None:
        if next(stalls, None) is not None:
            raise EngineBusyError("planted")
        write(batch)

    store.create_topics([("T", 1)])
    monkeypatch.setattr(engine, "write", stalling)
    ends = [store.put([Message("T", b"%d" % number)]).end_offset for number in range(10)]
    assert store._appends.dispatched.wait_for(ends[-1], 30)
    assert bodies(store.pull("T", 0, 0).records) == [b"%d" % number for number in range(10)]


def test_puts_are_refused_while_dispatch_lags_too_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_small(tmp_path / "store", max_dispatch_lag_bytes=1 << 16) as store:
        store.create_topics([("T", 1)])
        engine = live_engine(store)
        write = engine.write
        stalled = True

        def stalling(batch: KvBatch) -> None:
            if stalled:
                raise EngineBusyError("planted")
            write(batch)

        monkeypatch.setattr(engine, "write", stalling)
        for _ in range(59):  # of 1,112 bytes each
            store.append([Message("T", b"x" * 1000)])
        with pytest.raises(StoreBusyError, match="behind"):
            store.append([Message("T", b"x" * 1000)])
        stalled = False
        store.put([Message("T", b"x")])
        assert differences(store) == []


def test_an_expiry_that_fails_does_not_hold_the_checkpoint_back(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        raise StoreBusyError("no filter")

    monkeypatch.setattr(store.queues, "maintain", fails)
    end = store.put([Message("T", b"x")]).end_offset
    store.flush()
    store.put([Message("T", b"x")])
    store.log.flush(0)
    with pytest.raises(StoreBusyError, match="no filter"):
        store.maintain()
    assert store.flushed_offset >= end
    checkpoint = read_checkpoint(store.config.root / "checkpoint")
    assert checkpoint is not None
    assert checkpoint.flushed_offset == store.log.appended_offset


def test_closing_does_not_wait_for_a_whole_compaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_small(tmp_path)
    store.put([Message("T", b"x")])
    store._upkeep.segments_dropped(0, None)
    pieces: list[float] = []

    def compact(progress: Callable[[float], None]) -> None:
        for piece in (0.25, 0.5, 0.75, 1.0):
            if pieces:
                store.close()
            pieces.append(piece)
            progress(piece)

    monkeypatch.setattr(store.queues, "compact", compact)
    store._upkeep.reclaim()
    assert pieces == [0.25, 0.5]


def test_closed_is_closed(tmp_path: Path) -> None:
    store = open_small(tmp_path / "store")
    place = store.put([Message("T", b"x")]).placed[0].physical_offset
    with pytest.raises(StoreLockedError):
        open_small(tmp_path / "store")
    store.close()
    store.close()
    for call in (
        lambda: store.put([Message("T", b"x")]),
        lambda: store.pull("T", 0, 0),
        lambda: store.get(place),
        lambda: store.query("T", "k"),
        lambda: store.bounds([("T", 0)]),
        lambda: store.search_time("T", 0, 0, Boundary.LOWER),
        lambda: store.create_topics([("U", 1)]),
        lambda: store.delete_topic("T"),
        lambda: store.list_topics("", None, 1),
        lambda: store.commit_offsets("g", [("T", 0, 0)]),
    ):
        with pytest.raises(StoreClosedError):
            call()
    assert not (tmp_path / "store" / "abort").exists()


def test_a_close_that_fails_lets_go_of_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    store = open_small(root)
    store.put([Message("T", b"x")])
    close = KvConsumeQueueStore.close

    def fail(queues: KvConsumeQueueStore) -> None:
        close(queues)
        raise EngineFailedError("planted")

    monkeypatch.setattr(KvConsumeQueueStore, "close", fail)
    with pytest.raises(EngineFailedError):
        store.close()
    monkeypatch.undo()
    assert (root / "abort").exists()
    with open_small(root) as store:
        assert len(store.pull("T", 0, 0).records) == 1


def test_listeners_hear_what_grew(store: MessageStore) -> None:
    heard: list[set[tuple[str, int]]] = []

    def broken(_keys: set[tuple[str, int]]) -> None:
        raise RuntimeError("planted")

    store.on_dispatch(broken)
    leave = store.on_dispatch(heard.append)
    store.put([Message("T", b"x", 1, light_queues=("%LMQ%a",)), Message("U", b"x")])
    assert heard == [{("T", 1), ("U", 0), ("%LMQ%a", 0)}]
    leave()
    store.put([Message("T", b"x")])
    assert len(heard) == 1


def test_cold_reads_say_so_and_read_the_same(tmp_path: Path) -> None:
    with open_small(tmp_path / "store", hot_read_bytes=4096) as store:
        store.put([Message("T", b"x" * 1000) for _ in range(100)])
        assert store.is_cold("T", 0, 0)
        assert not store.is_cold("T", 0, 99)
        assert not store.is_cold("T", 0, 100)
        assert len(store.pull("T", 0, 0, max_messages=1000).records) == 100


def test_statistics_are_numbers(store: MessageStore) -> None:
    store.put([Message("T", b"x")])
    statistics = store.statistics()
    assert statistics["store.log_appended_offset"] == store.log.appended_offset
    assert all(isinstance(value, (int, float)) for value in statistics.values())


# --- what the checkpoint says -----------------------------------------------------------------


@pytest.mark.parametrize("mode", list(FlushMode))
def test_the_checkpoint_has_times_of_what_is_durable_and_of_nothing_else(
    tmp_path: Path, mode: FlushMode
) -> None:
    clock = FakeClock()
    times = []

    def put(store: MessageStore) -> int:
        clock.advance(5)
        done = store.append([Message("T", b"x")])
        times.append(done.store_time_ms)
        return done.placed[0].physical_offset

    def checkpoint() -> Checkpoint:
        found = read_checkpoint(tmp_path / "checkpoint")
        assert found is not None
        return found

    with open_small(tmp_path, clock, flush_mode=mode) as store:
        store.maintain()
        assert checkpoint() == Checkpoint()
        put(store)
        store.flush()
        store.wait_visible()  # SYNC: dispatched once it is flushed
        store.flush()
        assert checkpoint().log_time_ms == checkpoint().queue_time_ms == times[0]
        put(store)
        store._services.flush.request(store.log.appended_offset)
        assert store._appends.flushed.wait_for(store.log.appended_offset, 30)
        store.maintain()
        assert (checkpoint().log_time_ms, checkpoint().queue_time_ms) == (times[1], times[0])
        if mode is FlushMode.ASYNC:
            put(store)
            store.maintain()
            assert checkpoint().log_time_ms == times[1]
        last = put(store)
    assert checkpoint().log_time_ms == checkpoint().queue_time_ms == times[-1]
    assert checkpoint().flushed_offset > last
    (tmp_path / "abort").write_bytes(b"1")
    (tmp_path / "checkpoint").unlink()
    with open_small(tmp_path, clock):
        pass
    assert checkpoint().confirmed_offset == last  # where the last record begins
    clock.jump(-10_000)
    with open_small(tmp_path, clock) as store:  # nothing is scanned: the checkpoint knows
        assert store.put([Message("T", b"x")]).store_time_ms == times[-1]
