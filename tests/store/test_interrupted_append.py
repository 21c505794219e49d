"""Ctrl-C inside an append: afterwards the batch is there whole, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store.config import FlushMode
from store.format.record import unpack_record
from store.log.watermark import Watermark
from store.message import Message
from tests.support.checked import assert_whole
from tests.support.interrupts import interrupt
from tests.support.rebuild import differences
from tests.support.seeds import fewer
from tests.support.stores import open_small

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from store.consume_queue import DispatchRequest
    from store.message_store import MessageStore

ALL = ("store", "kvcq")


class Run:
    """One store that is interrupted again and again, and what must be in it."""

    def __init__(self, store: MessageStore, *, sizes: tuple[int, ...], plain: bool = False) -> None:
        self.sizes = sizes
        self.plain = plain
        self.acknowledged: list[bytes] = []
        self.interrupted: list[list[bytes]] = []
        self.number = 0
        self.attach(store)

    def attach(self, store: MessageStore) -> None:
        self.store = store
        #: Up to where listeners have heard of messages.
        self.heard = Watermark("heard", store.log.appended_offset)
        store.on_dispatch(self._hear)

    def _hear(self, requests: Sequence[DispatchRequest]) -> None:
        self.heard.advance(requests[-1].physical_offset + requests[-1].record_size)

    def batch(self, topic: str = "T") -> list[Message]:
        self.number += 1
        return [
            Message(
                topic,
                b"%d-%d " % (self.number, index) + b"x" * size,
                index % 2,
                keys=() if self.plain else (f"k{self.number}",),
                light_queues=() if self.plain else ("%LMQ%a", f"%LMQ%{self.number % 3}"),
            )
            for index, size in enumerate(self.sizes)
        ]

    def interrupt(
        self, at: int, again: int = 0, topic: str = "T", packages: tuple[str, ...] = ALL
    ) -> bool:
        """False when the append has no such instruction."""
        batch = self.batch(topic)
        returned = []
        told: list[BaseException | None] = []
        dispatched = self.store._appends.dispatched
        before = self.store.log.appended_offset
        dispatched.call_when(before + 1, told.append)
        reached = interrupt(lambda: returned.append(self.store.put(batch)), at, again, packages)
        if not again:
            # Nobody has to put more for what is in the log to be seen, and told of.
            self.store.wait_visible()
            assert told or self.store.log.appended_offset == before
            assert self.heard.wait_for(self.store.log.appended_offset, 20)
        bodies = [message.body for message in batch]
        if returned:
            self.acknowledged += bodies
        else:
            self.interrupted.append(bodies)
        return reached

    def go_on(self, topic: str = "T") -> None:
        batch = self.batch(topic)
        self.store.put(batch)
        self.acknowledged += [message.body for message in batch]
        # One truth for the log's end, and what was dispatched is what was appended.
        log = self.store.log
        assert log._segments.end_offset == log.appended_offset

    def check(self, store: MessageStore, topics: tuple[str, ...] = ("T",)) -> None:
        store.wait_visible()
        found: list[bytes] = []
        for topic in topics:
            for queue_id in (0, 1):
                at = 0
                while records := store.pull(topic, queue_id, at, max_messages=1000).records:
                    found += [unpack_record(record).body for record in records]
                    at += len(records)
        assert len(found) == len(set(found))
        there = set(found)
        assert set(self.acknowledged) <= there
        rest = there - set(self.acknowledged)
        for bodies in self.interrupted:
            assert rest.isdisjoint(bodies) or rest.issuperset(bodies)
            rest -= set(bodies)
        assert rest == set()
        assert differences(store) == []


@pytest.mark.parametrize(
    ("mode", "again", "step"),
    [
        (FlushMode.ASYNC, 40, 31),
        (FlushMode.SYNC, 0, 31),
        (FlushMode.SYNC, 40, 31),
        pytest.param(FlushMode.ASYNC, 0, 1, marks=pytest.mark.slow),
        pytest.param(FlushMode.ASYNC, 40, 11, marks=pytest.mark.slow),
        pytest.param(FlushMode.SYNC, 0, 11, marks=pytest.mark.slow),
        pytest.param(FlushMode.SYNC, 40, 11, marks=pytest.mark.slow),
    ],
)
def test_an_interrupt_at_any_instruction_leaves_the_batch_whole_or_out(
    tmp_path: Path, mode: FlushMode, again: int, step: int
) -> None:
    with open_small(tmp_path / "s", flush_mode=mode) as store:
        run = Run(store, sizes=(30, 500))
        run.go_on()
        at = 1
        while run.interrupt(at, again):
            run.go_on()
            at += step
        assert at > 300
        run.check(store)
    with open_small(tmp_path / "s", flush_mode=mode) as store:
        run.check(store)
    assert_whole(tmp_path / "s")


@pytest.mark.parametrize("step", fewer(19, 3))
@pytest.mark.parametrize("size", [30, 3000])
def test_an_interrupt_of_messages_that_go_by_columns_leaves_them_whole_or_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, step: int
) -> None:
    monkeypatch.setattr("store.format.preparing.FEW", 2)
    with open_small(tmp_path / "s") as store:
        run = Run(store, sizes=(size,) * 3, plain=True)
        run.go_on()
        at = 1
        while run.interrupt(at):
            run.go_on()
            at += step
        assert at > 300
        run.check(store)
    with open_small(tmp_path / "s") as store:
        run.check(store)
    assert_whole(tmp_path / "s")


@pytest.mark.parametrize(
    ("step", "preallocate"),
    [
        (67, False),
        (127, True),
        pytest.param(29, False, marks=pytest.mark.slow),
        pytest.param(61, True, marks=pytest.mark.slow),
    ],
)
def test_an_interrupt_of_a_batch_over_several_segments_leaves_it_whole_or_out(
    tmp_path: Path, *, step: int, preallocate: bool
) -> None:
    at, reached = 1, True
    while reached:
        root = tmp_path / f"from-{at}"  # a store has a file open for each segment
        with open_small(root, segment_bytes=8192, preallocate=preallocate) as store:
            run = Run(store, sizes=(3000,) * 4)
            run.go_on()
            for _ in range(60):
                reached = run.interrupt(at, packages=("store",))
                run.go_on()
                at += step
                if not reached:
                    break
            run.check(store)
        with open_small(root, segment_bytes=8192) as store:
            run.check(store)
        assert_whole(root)
    assert at > 300


@pytest.mark.parametrize("step", fewer(67, 23))
def test_an_interrupt_while_topics_come_into_being_leaves_them_usable(
    tmp_path: Path, step: int
) -> None:
    topics = ["T"]
    with open_small(tmp_path / "s", hot_queue_limit=16) as store:
        run = Run(store, sizes=(30, 50))
        at = 1
        while True:
            topic = f"T{at}"
            topics.append(topic)
            reached = run.interrupt(at, topic=topic)
            run.go_on(topic)
            if not reached:
                break
            at += step
        run.check(store, tuple(topics[1:]))
    with open_small(tmp_path / "s") as store:
        run.check(store, tuple(topics[1:]))
    assert_whole(tmp_path / "s")


def test_a_store_can_be_closed_or_read_right_behind_an_interrupt(tmp_path: Path) -> None:
    reached, at = True, 5
    run = None
    while reached:
        with open_small(tmp_path / "s", segment_bytes=8192) as store:
            run = run or Run(store, sizes=(3000, 3000, 3000))
            run.attach(store)
            reached = run.interrupt(at)
            at += 397
    assert run is not None
    with open_small(tmp_path / "s", segment_bytes=8192) as store:
        run.check(store)
    assert_whole(tmp_path / "s")
