"""Timers are kept until they are due, whatever the log keeps: a kind of what is held."""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from store.format import unpack_record
from store.held.readable import read_each
from store.held.records import TIMER_OUT, first_place, moved, number_of
from store.puts import Step
from store.state import TIMER_TOPIC, TimerEnd, TimerEnded, timer_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from store.held.reads import Reads
    from store.held.rolling import Done
    from store.message import Message, StoredMessage
    from store.puts import AppendPath
    from store.state import Tables
    from store.topics import Topics

logger = logging.getLogger(__name__)

#: Records that are looked at together, and those that one append moves.
_TOGETHER = 256
_MOST_BYTES = 4 << 20


class _Timer(NamedTuple):
    """One that waits at a place in the part of the log that is to go."""

    key: bytes
    due_ms: int
    was: StoredMessage


class TimerKeeping:
    """Thread: that of retention."""

    def __init__(self, appends: AppendPath, topics: Topics, tables: Tables, reads: Reads) -> None:
        """`tables`: at the dispatch point."""
        # Constant after construction.
        self._appends = appends
        self._topics = topics
        self._tables = tables
        self._reads = reads
        #: Since the store was opened; read freely.
        self.moved = 0
        self.lost = 0

    def topics(self) -> Iterator[str]:
        if self._tables.count_timers():
            yield TIMER_TOPIC

    def said(self, topic: str) -> str:
        del topic
        return "delayed messages"

    def live_places(self, topic: str, first: int, behind: int) -> Iterator[int]:
        """One whose record is damaged is none: nothing of it could be kept."""
        return (each.was.queue_offset for each in self._live(topic, first, behind))

    def _live(self, topic: str, first: int, behind: int) -> Iterator[_Timer]:
        for start in range(first, behind, _TOGETHER):
            places = range(start, min(start + _TOGETHER, behind))
            records, lost = read_each(self._reads, topic, places)
            for place, reason in lost.items():
                logger.error("what %s has at place %d is not kept: %s", topic, place, reason)
            timers: list[_Timer] = []
            for _, record in sorted(records.items()):
                was = unpack_record(record, verify=False)
                due_ms = number_of(was.properties, TIMER_OUT, 0)
                timers.append(_Timer(timer_key(due_ms, first_place(was)), due_ms, was))
            rows = self._tables.timers([each.key for each in timers])
            for timer, row in zip(timers, rows, strict=True):
                if row is not None and row.place == timer.was.queue_offset:
                    yield timer

    def move_some(self, topic: str, behind: int, done: Done) -> Done:
        assert done.at is not None, "something is left"
        found: list[_Timer] = []
        size = 0
        for timer in islice(self._live(topic, done.at, behind), _TOGETHER + 1):
            if len(found) == _TOGETHER or size >= _MOST_BYTES:
                after = done._replace(at=timer.was.queue_offset)
                break
            found.append(timer)
            size += timer.was.record_size
        else:
            after = done._replace(at=None)
        count = 0

        def steps() -> Sequence[Step]:
            nonlocal count
            entries: list[TimerEnded] = []
            messages: list[Message] = []
            to = self._topics.next_own(topic)
            rows = self._topics.view.tables.timers([each.key for each in found])
            for (_, due_ms, was), row in zip(found, rows, strict=True):
                if row is None or row.place != was.queue_offset:
                    continue  # it was delivered or recalled meanwhile
                name, place = first_place(was), to + len(messages)
                entries.append(TimerEnded(due_ms, name, place, TimerEnd.MOVED))
                messages.append(moved(was))
            count = len(messages)
            return [Step(entries, messages)] if entries else []

        if found:
            self._appends.decide_steps(steps)
        self.moved += count
        return after._replace(moved=done.moved + count, bytes=done.bytes + size)

    def given_up(self, topic: str, count: int) -> None:
        del topic
        self.lost += count
