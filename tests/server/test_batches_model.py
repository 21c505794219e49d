"""Numbered batches against a model: sends, resends, deletions, retention, kills, in any order.

Each message of a producer stands at most once among those of its topic; one that was acknowledged,
and was neither deleted nor expired since, stands exactly once. HYPOTHESIS_PROFILE=nightly runs it
longer.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.errors import NumberPassedError, NumberReusedError
from server.puts.appender import Appender
from server.puts.producer_sessions import ProducerSessions
from server.wire.batch_checksum import checksum_of
from server.wire.messages_in import request_in
from server.wire.put_limits import Budget
from server.workers import Workers
from store.base import SystemClock
from store.errors import UnknownTopicError
from store.format.record import unpack_record
from store.message import Message
from tests.support.fake_clock import FakeClock
from tests.support.rebuild import differences
from tests.support.stores import open_small
from tests.support.tree import copy_open

if TYPE_CHECKING:
    from server.wire.columns import Stored

TOPICS = ("A", "B", "C")
LIGHT = "%LMQ%l"
PRODUCERS = ("p", "q")
SEGMENT = 8192
#: Wall clock of RocksDB's filter; the model's clock must never be behind it.
START_MS = SystemClock().now_ms() + 3_600_000

sent_messages = st.lists(
    st.tuples(st.sampled_from(TOPICS), st.sampled_from([0, 0, 2500]), st.booleans()),
    min_size=1,
    max_size=5,
)


@dataclass
class Sent:
    """One message of a batch, where its latest copy stands."""

    topic: str
    body: bytes
    light: bool
    place: int = -1  # physical offset
    topic_deleted: bool = False
    light_deleted: bool = False

    def standing(self, log_start: int) -> bool:
        there = not self.topic_deleted or (self.light and not self.light_deleted)
        return there and not self.expired(log_start)

    def expired(self, log_start: int) -> bool:
        return self.place < log_start


@dataclass
class Batch:
    """What was sent under a number, and acknowledged."""

    sequence: int
    messages: list[Sent]
    store_time_ms: int = 0
    next_sequence: int = 0  # of its producer, as the log knew it then

    def request(self) -> pb.PutBatchRequest:
        return pb.PutBatchRequest(
            messages=[
                pb.Message(
                    topic=each.topic,
                    body=each.body,
                    queue_id=0,
                    light_queues=[LIGHT] if each.light else [],
                )
                for each in self.messages
            ]
        )


class BatchMachine(RuleBasedStateMachine):
    """Steps on a real store in a temporary directory."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="kvcq-batches-"))
        self.number = 0
        self.clock = FakeClock(START_MS)
        self.workers = Workers(1)
        self.batches: dict[str, list[Batch]] = {name: [] for name in PRODUCERS}
        self.runner = asyncio.Runner()
        self._open()

    def _open(self) -> None:
        self.store = open_small(
            self.directory / str(self.number),
            self.clock,
            segment_bytes=SEGMENT,
            default_queue_count=1,
            reserved_hours=1,
            expiry_margin_s=2,
        )
        self.appender = Appender(self.store, self.workers)
        self.forget()

    def _close(self) -> None:
        self.appender.close()
        self.store.close()

    def teardown(self) -> None:
        self.runner.close()
        self._close()
        self.workers.close()
        shutil.rmtree(self.directory)

    def put(self, producer: str, batch: Batch) -> Stored:
        request = batch.request()
        messages = request_in(request, ("10.0.0.1", 5), lambda *_: 0, Budget())
        checksum = checksum_of(request, messages)
        return self.runner.run(self.sessions.append(producer, batch.sequence, messages, checksum))

    @property
    def log_start(self) -> int:
        return self.store.log.start_offset

    # --- steps ---------------------------------------------------------------------------------

    @rule()
    def forget(self) -> None:
        self.sessions = ProducerSessions(self.store, self.appender, self.workers, 2, 2, 6)

    @rule(producer=st.sampled_from(PRODUCERS), wanted=sent_messages)
    def send(self, producer: str, wanted: list[tuple[str, int, bool]]) -> None:
        sent = self.batches[producer]
        sequence = sent[-1].sequence + len(sent[-1].messages) if sent else 3
        messages = [
            Sent(topic, f"{producer}{sequence + at}".encode().ljust(size, b"."), light)
            for at, (topic, size, light) in enumerate(wanted)
        ]
        batch = Batch(sequence, messages)
        stored = self.put(producer, batch)
        assert not stored.repeated
        sent.append(batch)
        self._note(producer, batch, stored)

    def _note(self, producer: str, batch: Batch, stored: Stored) -> None:
        end = batch.sequence + len(batch.messages)
        batch.next_sequence = max(self._next_sequence(producer, self.log_start), end)
        batch.store_time_ms = stored.store_time_ms
        for each, place in zip(batch.messages, stored.columns.physical_offsets, strict=True):
            each.place, each.topic_deleted, each.light_deleted = place, False, False

    @precondition(lambda self: any(self.batches.values()))
    @rule(data=st.data())
    def send_again(self, data: st.DataObject) -> None:
        producer = data.draw(st.sampled_from([name for name in PRODUCERS if self.batches[name]]))
        for batch in self.batches[producer][data.draw(st.integers(-4, -1)) :]:
            self._send_again(producer, batch)

    def _send_again(self, producer: str, batch: Batch) -> None:
        start = self.log_start
        standing = any(each.standing(start) for each in batch.messages)
        expired = any(each.expired(start) for each in batch.messages)
        try:
            stored = self.put(producer, batch)
        except NumberPassedError:
            assert not standing
            assert expired
            return
        if not stored.repeated:
            # All of it was deleted; or the log knows of nothing from that number on.
            assert not standing
            assert not expired or batch.sequence >= self._next_sequence(producer, start)
            self._note(producer, batch, stored)
            return
        assert stored.store_time_ms == batch.store_time_ms
        for each, place in zip(batch.messages, stored.columns.physical_offsets, strict=True):
            assert place == each.place or (place == -1 and each.expired(start))

    def _next_sequence(self, producer: str, start: int) -> int:
        """What the log says of it; 0 when all of it has expired."""
        return max(
            (
                batch.next_sequence
                for batch in self.batches[producer]
                if not all(each.expired(start) for each in batch.messages)
            ),
            default=0,
        )

    @precondition(lambda self: any(self.batches.values()))
    @rule(data=st.data())
    def use_a_number_again(self, data: st.DataObject) -> None:
        producer = data.draw(st.sampled_from([name for name in PRODUCERS if self.batches[name]]))
        batch = data.draw(st.sampled_from(self.batches[producer]))
        if batch.sequence >= self._next_sequence(producer, self.log_start):
            return  # nobody knows of it any more
        kind = data.draw(st.sampled_from(["longer", "shorter", "other"]))
        messages = list(batch.messages)
        if kind == "longer":
            messages.append(Sent("A", b"more", light=False))
        elif kind == "shorter" and len(messages) > 1:
            messages.pop()
        else:
            messages[0] = Sent(messages[0].topic, b"other", messages[0].light)
        with pytest.raises((NumberReusedError, NumberPassedError)) as refused:
            self.put(producer, Batch(batch.sequence, messages))
        if not all(each.expired(self.log_start) for each in batch.messages):
            assert refused.type is NumberReusedError

    @rule(name=st.sampled_from((*TOPICS, LIGHT)))
    def delete(self, name: str) -> None:
        try:
            self.store.delete_topic(name)
        except UnknownTopicError:
            return
        for batch in (each for sent in self.batches.values() for each in sent):
            for each in batch.messages:
                each.topic_deleted |= each.topic == name
                each.light_deleted |= name == LIGHT

    @rule()
    def expire(self) -> None:
        self.clock.advance(2 * 3600)
        self.store.flush()
        self.store._services.retention.run_once(now=True)

    @rule(size=st.sampled_from([100, 4000]))
    def others_put(self, size: int) -> None:
        self.store.put([Message("other", b"x" * size)])

    @rule()
    def kill(self) -> None:
        self.number += 1
        copy_open(self.store.config.root, self.directory / str(self.number))
        self._close()
        self._open()

    @rule()
    def restart(self) -> None:
        self._close()
        self._open()

    # --- what always holds ---------------------------------------------------------------------

    @invariant()
    def each_message_stands_once(self) -> None:
        start = self.log_start
        sent = [each for all_of in self.batches.values() for one in all_of for each in one.messages]
        for name in TOPICS:
            there = self._bodies(name)
            assert all(count == 1 for count in there.values()), there
            assert set(there) == {
                each.body
                for each in sent
                if each.topic == name and not each.topic_deleted and not each.expired(start)
            }
        there = self._bodies(LIGHT)
        assert all(count == 1 for count in there.values()), there
        assert set(there) == {
            each.body
            for each in sent
            if each.light and not each.light_deleted and not each.expired(start)
        }

    def _bodies(self, name: str) -> Counter[bytes]:
        try:
            low, high = self.store.bounds([(name, 0)])[0]
        except UnknownTopicError:
            return Counter()
        if low == high:
            return Counter()
        pulled = self.store.pull(name, 0, low, max_messages=10_000)
        return Counter(unpack_record(record).body for record in pulled.records)

    @invariant()
    def derived_from_the_log(self) -> None:
        assert differences(self.store) == []


TestBatchModel = BatchMachine.TestCase
TestBatchModel.settings = settings(
    max_examples=400 if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else 8,
    stateful_step_count=60 if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else 25,
    deadline=None,
)
