"""The whole store against a model of plain lists, with closing, crashing, expiry and deletion.

P2 to P4, P8 to P10 and P12: after each step what can be read is what the model says, and the
database is what the log makes it. HYPOTHESIS_PROFILE=nightly runs it longer.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from store.base import SystemClock
from store.consume_queue import Boundary
from store.errors import OffsetOutOfRangeError, StoreError, UnknownTopicError
from store.format.record import unpack_record
from store.message import Message
from store.metadata import KEEP_ALL, Retention
from store.reads.latest_messages import DELETES_KEPT_MS
from tests.support.fake_clock import FakeClock
from tests.support.rebuild import differences
from tests.support.stores import open_small
from tests.support.tree import copy_open

if TYPE_CHECKING:
    from store.message_store import MessageStore

QUEUES = 2
TOPICS = ("A", "B")
LIGHT = ("%LMQ%x", "%LMQ%y")
KEYS = ("k1", "k2")
SEGMENT = 8192
#: Wall clock of RocksDB's filter; the model's clock must never be behind it (see the fixture).
START_MS = SystemClock().now_ms() + 3_600_000


class Sent(NamedTuple):
    """A message that was acknowledged."""

    body: bytes
    physical_offset: int
    store_time_ms: int
    keys: tuple[str, ...]
    tag: str


@dataclass
class Model:
    """What the store must hold: for each queue all messages since it was made, expired or not."""

    queues: dict[tuple[str, int], list[Sent]] = field(default_factory=dict)
    topics: set[str] = field(default_factory=set)
    log_start: int = 0
    now_ms: int = START_MS
    retention: dict[str, Retention] = field(default_factory=dict)
    #: Offsets that a later message of the same key hides, by queue.
    hidden: dict[tuple[str, int], set[int]] = field(default_factory=dict)

    def queue(self, topic: str, queue_id: int) -> list[Sent]:
        return self.queues.setdefault((topic, queue_id), [])

    def min_offset(self, topic: str, queue_id: int) -> int:
        messages = self.queue(topic, queue_id)
        kept = self.retention.get(topic, KEEP_ALL)
        oldest_ms = self.now_ms - kept.time_ms if kept.time_ms else 0
        return max(
            sum(each.physical_offset < self.log_start for each in messages),
            sum(each.store_time_ms < oldest_ms for each in messages),
            len(messages) - kept.messages if kept.messages else 0,
        )

    def live(self, topic: str, queue_id: int) -> list[Sent]:
        return self.queue(topic, queue_id)[self.min_offset(topic, queue_id) :]

    def visible(self, topic: str, queue_id: int) -> list[Sent]:
        """What readers get, in order."""
        low = self.min_offset(topic, queue_id)
        hidden = self.hidden.get((topic, queue_id), set())
        queue = self.queue(topic, queue_id)
        return [each for at, each in enumerate(queue) if at >= low and at not in hidden]

    def keep_latest(self, topic: str, queue_id: int) -> None:
        latest: dict[str, int] = {}
        hidden = set()
        queue = self.queue(topic, queue_id)
        for at, each in enumerate(queue):
            key = " ".join(each.keys)
            if key and each.physical_offset >= self.log_start:
                if key in latest:
                    hidden.add(latest[key])
                latest[key] = at
        oldest_ms = self.now_ms - DELETES_KEPT_MS
        for at in latest.values():
            if not queue[at].body and queue[at].store_time_ms < oldest_ms:
                hidden.add(at)
        self.hidden[topic, queue_id] = hidden


messages = st.builds(
    Message,
    topic=st.sampled_from(TOPICS),
    body=st.binary(max_size=6) | st.binary(min_size=900, max_size=902),
    queue_id=st.integers(0, QUEUES - 1),
    tag=st.sampled_from(["", "t1", "t2"]),
    keys=st.lists(st.sampled_from(KEYS), max_size=2).map(tuple),
    light_queues=st.lists(st.sampled_from(LIGHT), max_size=3).map(tuple),
)


class StoreMachine(RuleBasedStateMachine):
    """Steps on a real store in a temporary directory."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="kvcq-model-"))
        self.number = 0
        self.clock = FakeClock(START_MS)
        self.model = Model()
        self.store = self._open()

    def _open(self) -> MessageStore:
        return open_small(
            self.directory / str(self.number),
            self.clock,
            segment_bytes=SEGMENT,
            default_queue_count=QUEUES,
            hot_queue_limit=16,
            reserved_hours=1,
            expiry_margin_s=2,
        )

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.directory)

    # --- steps ---------------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        self.store.create_topics([("A", QUEUES)])
        self.model.topics.add("A")

    @rule(batch=st.lists(messages, min_size=1, max_size=8))
    def put(self, batch: list[Message]) -> None:
        done = self.store.put(batch)
        for message, placed in zip(batch, done.placed, strict=True):
            self.model.topics.add(message.topic)
            sent = Sent(
                message.body,
                placed.physical_offset,
                done.store_time_ms,
                message.keys,
                message.tag,
            )
            offset = len(self.model.queue(message.topic, message.queue_id))
            assert placed.queue_offset == offset
            self.model.queue(message.topic, message.queue_id).append(sent)
            names = tuple(dict.fromkeys(message.light_queues))
            assert placed.light_queue_offsets == tuple(
                len(self.model.queue(name, 0)) for name in names
            )
            for name in names:
                self.model.queue(name, 0).append(sent)

    @rule(seconds=st.sampled_from([0.001, 1.0, 1000.0, 100_000.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.model.now_ms = self.clock.now_ms()

    @rule(
        topic=st.sampled_from(TOPICS),
        time_ms=st.sampled_from([0, 1, 1000, 1_000_000]),
        count=st.integers(0, 6),
    )
    def keep(self, topic: str, time_ms: int, count: int) -> None:
        if topic not in self.model.topics:
            with pytest.raises(UnknownTopicError):
                self.store.keep(topic, messages=count)
            return
        self.store.keep(topic, time_ms=time_ms, messages=count)
        self.model.retention[topic] = Retention(time_ms=time_ms, messages=count)

    @rule(topic=st.sampled_from(TOPICS + LIGHT))
    def delete(self, topic: str) -> None:
        known = topic in self.model.topics if topic in TOPICS else self.model.queue(topic, 0)
        if not known:
            with pytest.raises(UnknownTopicError):
                self.store.delete_topic(topic)
            return
        self.store.delete_topic(topic)
        self.model.topics.discard(topic)
        self.model.retention.pop(topic, None)
        for queue_id in range(QUEUES):
            self.model.queue(topic, queue_id).clear()
            self.model.hidden.pop((topic, queue_id), None)

    @rule(topic=st.sampled_from(TOPICS + LIGHT), queue_id=st.integers(0, QUEUES - 1))
    def keep_latest(self, topic: str, queue_id: int) -> None:
        if topic in LIGHT:
            queue_id = 0
        if topic in self.model.topics or self.model.queue(topic, queue_id):
            self.store.maintenance.keep_latest(topic, queue_id, lambda _done, _total: None)
            self.model.keep_latest(topic, queue_id)

    @rule(topic=st.sampled_from(TOPICS))
    def create(self, topic: str) -> None:
        self.store.create_topics([(topic, QUEUES)])
        self.model.topics.add(topic)

    @rule()
    def flush(self) -> None:
        self.store.flush()

    @rule()
    def maintain(self) -> None:
        self.store.maintain()

    @rule()
    def expire(self) -> None:
        self.store.flush()
        self.store._services.retention.run_once(now=True)
        start = self.store.log.start_offset
        assert start >= self.model.log_start
        # Only what is older than an hour may go.
        limit = self.clock.now_ms() - 3_600_000
        for queue in self.model.queues.values():
            assert all(each.store_time_ms <= limit for each in queue if each[1] < start)
        self.model.log_start = start
        self.store._upkeep.reclaim()

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = self._open()

    @rule()
    def crash(self) -> None:
        """A killed process leaves the page cache, so the files as they are."""
        old = self.store
        self.number += 1
        copy_open(old.config.root, self.directory / str(self.number))
        old.close()
        shutil.rmtree(old.config.root)
        self.store = self._open()

    @precondition(lambda self: not self.model.log_start)
    @rule()
    def lose_the_database(self) -> None:
        """Once a queue has expired whole, only the database knows how far it came."""
        self.store.close()
        shutil.rmtree(self.store.config.root / "kvcq")
        self.store = self._open()

    # --- what must hold ------------------------------------------------------------------------

    @invariant()
    def database_is_what_the_log_makes_it(self) -> None:
        assert differences(self.store) == []

    @invariant()
    def queues_hold_what_was_put(self) -> None:
        for topic in TOPICS:
            if topic not in self.model.topics:
                with pytest.raises(UnknownTopicError):
                    self.store.bounds([(topic, 0)])
                continue
            for queue_id in range(QUEUES):
                self._compare(topic, queue_id)
        for name in LIGHT:
            if self.model.queue(name, 0):
                self._compare(name, 0)
            else:
                with pytest.raises(UnknownTopicError):
                    self.store.bounds([(name, 0)])
        assert set(self.store.list_light_queues("", None, 9)) == {
            name for name in LIGHT if self.model.queue(name, 0)
        }

    def _compare(self, topic: str, queue_id: int) -> None:
        sent = self.model.queue(topic, queue_id)
        low, high = self.store.bounds([(topic, queue_id)])[0]
        assert (low, high) == (self.model.min_offset(topic, queue_id), len(sent))
        assert 0 <= low <= high
        pulled = self.store.pull(topic, queue_id, low, max_messages=10_000, max_bytes=1 << 30)
        visible = self.model.visible(topic, queue_id)
        assert [unpack_record(each).body for each in pulled.records] == [
            each.body for each in visible
        ]
        assert pulled.next_offset == high
        tagged = self.store.pull(topic, queue_id, low, max_messages=10_000, tag_filter="t1")
        assert [unpack_record(each).body for each in tagged.records] == [
            each.body for each in visible if each.tag == "t1"
        ]
        for offset in (low - 1, high + 1):
            with pytest.raises((OffsetOutOfRangeError, StoreError)):
                self.store.pull(topic, queue_id, offset)

    @invariant()
    def keys_find_what_a_scan_finds(self) -> None:
        for topic in TOPICS:
            if topic not in self.model.topics:
                continue
            every = [each for n in range(QUEUES) for each in self.model.visible(topic, n)]
            for key in KEYS:
                found: list[int] = []
                cursor = None
                while True:
                    page = self.store.query(topic, key, limit=3, cursor=cursor)
                    found += [unpack_record(each).physical_offset for each in page.records]
                    cursor = page.cursor
                    if page.complete:
                        break
                assert found == sorted(each[1] for each in every if key in each.keys)

    @invariant()
    def time_search_finds_what_a_scan_finds(self) -> None:
        if "A" not in self.model.topics:
            return
        low = self.model.min_offset("A", 0)
        times = [each.store_time_ms for each in self.model.live("A", 0)]
        for time_ms in {START_MS - 1, self.clock.now_ms(), *times, *(t + 1 for t in times)}:
            lower = self.store.search_time("A", 0, time_ms, Boundary.LOWER)
            upper = self.store.search_time("A", 0, time_ms, Boundary.UPPER)
            assert lower == low + bisect_left(times, time_ms)
            assert upper == low + max(0, bisect_right(times, time_ms) - 1)


_NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
TestStoreModel = StoreMachine.TestCase
TestStoreModel.settings = settings(
    max_examples=300 if _NIGHTLY else 8, stateful_step_count=60 if _NIGHTLY else 15
)
