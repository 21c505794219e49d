"""Keeps timers until they are due, whatever the log's retention: a kind of held record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.held.moving import TOGETHER, WaitingKind
from store.held.records import TIMER_OUT, first_place, number_of
from store.state import TIMER_TOPIC, TimerEnd, TimerEnded, timer_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from store.held.reads import Reads
    from store.message import StoredMessage
    from store.puts import AppendPath
    from store.state import Entry, Tables
    from store.topics import Topics


class TimerKeeping(WaitingKind):
    """Timers as a kind of held record. Thread: that of retention."""

    def __init__(self, appends: AppendPath, topics: Topics, tables: Tables, reads: Reads) -> None:
        """`tables`: the state at the dispatch point."""
        super().__init__(appends, topics, reads, TIMER_TOPIC, "delayed messages")
        self._tables = tables

    def _has_some(self) -> bool:
        return bool(self._tables.count_timers())

    def _live(self, first: int, behind: int) -> Iterator[StoredMessage]:
        for start in range(first, behind, TOGETHER):
            found = self._read(range(start, min(start + TOGETHER, behind)))
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
