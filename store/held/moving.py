"""Keeps timers until they are due and halves until they are decided, whatever the log's retention:
moves waiting records to the end of their system topic.

A move need not be durable when it returns: the log is flushed before segments are dropped, and
until then the old record still exists.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from store.format import unpack_record
from store.held.readable import read_certain
from store.held.records import TIMER_OUT, first_place, moved, number_of
from store.puts import Step
from store.state import (
    HALVES_TOPIC,
    TIMER_TOPIC,
    HalfMoved,
    HalfTables,
    TimerEnd,
    TimerEnded,
    timer_key,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from store.held.rolling import Done
    from store.message import Message, StoredMessage
    from store.puts import AppendPath
    from store.reads import ReadPath
    from store.state import Entry, Rows, Tables
    from store.topics import Topics

logger = logging.getLogger(__name__)

#: Records that are looked up together, and most that one append moves.
_TOGETHER = 256
_MOST_BYTES = 4 << 20
#: Halves that are listed together.
_PAGE = 1000


class WaitingKind(ABC):
    """A Kind of rolling.py whose records wait in a single topic. Thread: that of retention."""

    def __init__(
        self, appends: AppendPath, topics: Topics, reads: ReadPath, topic: str, said: str
    ) -> None:
        """`said`: the topic's content, for log messages, such as "delayed messages"."""
        # Constant after construction.
        self._appends = appends
        self._topics = topics
        self._reads = reads
        self._topic = topic
        self._said = said
        #: Numbers of records since the store was opened; may be read without a lock.
        self.moved = 0
        self.lost = 0

    @abstractmethod
    def _has_some(self) -> bool:
        """Whether any record waits."""

    @abstractmethod
    def _live(self, first: int, behind: int) -> Iterator[StoredMessage]:
        """Yield the waiting records at first <= place < behind, ascending, from rows at the
        dispatch point. Raises like `_read`."""

    @abstractmethod
    def _move_entries(self, waiting: Sequence[StoredMessage]) -> list[Entry | None]:
        """The entry that moves each record, in order; None if it was delivered or decided
        meanwhile. The n-th moved record gets the n-th next place of the topic. Must hold the append
        lock."""

    def _read(self, places: Sequence[int]) -> list[StoredMessage]:
        """The records at these places, ascending. Damaged ones are logged and left out. Raises
        DamagedQueueError while one may still become readable."""
        records, lost = read_certain(self._reads, self._topic, places)
        for place, reason in lost.items():
            logger.error("what %s has at place %d is not kept: %s", self._topic, place, reason)
        return [unpack_record(each, verify=False) for _, each in sorted(records.items())]

    def topics(self) -> Iterator[str]:
        if self._has_some():
            yield self._topic

    def describe(self, topic: str) -> str:
        del topic
        return self._said

    def live_places(self, topic: str, first: int, behind: int) -> Iterator[int]:
        del topic
        return (was.queue_offset for was in self._live(first, behind))

    def move_some(self, topic: str, behind: int, done: Done) -> Done:
        assert done.at is not None, "something is left"
        del topic
        found: list[StoredMessage] = []
        size, rest = 0, None
        for was in self._live(done.at, behind):
            if len(found) == _TOGETHER or size >= _MOST_BYTES:
                rest = was.queue_offset
                break
            found.append(was)
            size += was.record_size
        count = 0

        def decide() -> Sequence[Step]:
            nonlocal count
            entries: list[Entry] = []
            messages: list[Message] = []
            for was, entry in zip(found, self._move_entries(found), strict=True):
                if entry is not None:
                    entries.append(entry)
                    messages.append(moved(was))
            count = len(messages)
            return [Step(entries, messages)] if entries else []

        if found:
            self._appends.decide_steps(decide)
        self.moved += count
        return done._replace(at=rest, moved=done.moved + count, bytes=done.bytes + size)

    def given_up(self, topic: str, count: int) -> None:
        del topic
        self.lost += count


class TimerKeeping(WaitingKind):
    """Timers as a kind of held record. Thread: that of retention."""

    def __init__(
        self, appends: AppendPath, topics: Topics, tables: Tables, reads: ReadPath
    ) -> None:
        """`tables`: the state at the dispatch point."""
        super().__init__(appends, topics, reads, TIMER_TOPIC, "delayed messages")
        self._tables = tables

    def _has_some(self) -> bool:
        return bool(self._tables.count_timers())

    def _live(self, first: int, behind: int) -> Iterator[StoredMessage]:
        for start in range(first, behind, _TOGETHER):
            found = self._read(range(start, min(start + _TOGETHER, behind)))
            rows = self._tables.timers([_key(was) for was in found])
            for was, row in zip(found, rows, strict=True):
                if row is not None and row.place == was.queue_offset:
                    yield was

    def _move_entries(self, waiting: Sequence[StoredMessage]) -> list[Entry | None]:
        to = self._topics.next_own(TIMER_TOPIC)
        rows = self._topics.view.tables.timers([_key(was) for was in waiting])
        entries: list[Entry | None] = []
        for was, row in zip(waiting, rows, strict=True):
            if row is None or row.place != was.queue_offset:
                entries.append(None)
                continue
            entries.append(TimerEnded(_due_ms(was), first_place(was), to, TimerEnd.MOVED))
            to += 1
        return entries


def _due_ms(was: StoredMessage) -> int:
    return number_of(was.properties, TIMER_OUT, 0)


def _key(was: StoredMessage) -> bytes:
    return timer_key(_due_ms(was), first_place(was))


class RolledHalves(WaitingKind):
    """Halves as a kind of held record. A moved half keeps its row: checks, next check, nonce, and
    the offset where it began. Thread: that of retention."""

    def __init__(
        self, appends: AppendPath, topics: Topics, state: Rows, tables: Tables, reads: ReadPath
    ) -> None:
        """`state`, `tables`: at the dispatch point."""
        super().__init__(appends, topics, reads, HALVES_TOPIC, "messages of open transactions")
        self._halves = HalfTables(state)
        self._tables = tables

    def _has_some(self) -> bool:
        return self._tables.topic(HALVES_TOPIC) is not None and bool(self._halves.count().open)

    def live_places(self, topic: str, first: int, behind: int) -> Iterator[int]:
        """Does not read records. Moved halves have lower names and higher places than the
        others."""
        del topic
        places: list[int] = []
        name = 0
        while rows := self._halves.open_from(name, _PAGE):
            places += [row.place for row in rows if first <= row.place < behind]
            name = rows[-1].half + 1
            if name > behind:  # a place is never below its name
                break
        return iter(sorted(places))

    def _live(self, first: int, behind: int) -> Iterator[StoredMessage]:
        places = [*self.live_places(HALVES_TOPIC, first, behind)]
        for at in range(0, len(places), _TOGETHER):
            yield from self._read(places[at : at + _TOGETHER])

    def _move_entries(self, waiting: Sequence[StoredMessage]) -> list[Entry | None]:
        view = HalfTables(self._topics.view)
        to = self._topics.next_own(HALVES_TOPIC)
        entries: list[Entry | None] = []
        for was in waiting:
            row = view.open(first_place(was))
            if row is None or row.place != was.queue_offset:
                entries.append(None)
                continue
            entries.append(HalfMoved(row.half, to))
            to += 1
        return entries
