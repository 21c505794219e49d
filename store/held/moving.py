"""Moves waiting records to the end of their system topic: shared by timers and halves.

A move need not be durable when it returns: the log is flushed before segments are dropped, and
until then the old record still exists.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from store.format import unpack_record
from store.held.readable import read_certain
from store.held.records import moved
from store.puts import Step

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from store.held.reads import Reads
    from store.held.rolling import Done
    from store.message import Message, StoredMessage
    from store.puts import AppendPath
    from store.state import Entry
    from store.topics import Topics

logger = logging.getLogger(__name__)

#: Records that are looked up together, and most that one append moves.
TOGETHER = 256
_MOST_BYTES = 4 << 20


class WaitingKind(ABC):
    """A Kind of rolling.py whose records wait in a single topic. Thread: that of retention."""

    def __init__(
        self, appends: AppendPath, topics: Topics, reads: Reads, topic: str, said: str
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
            if len(found) == TOGETHER or size >= _MOST_BYTES:
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
