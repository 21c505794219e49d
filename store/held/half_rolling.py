"""Keeps halves until they are decided, independent of the log's retention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.held.moving import TOGETHER, WaitingKind
from store.held.records import first_place
from store.state import HALVES_TOPIC, HalfMoved, HalfTables

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from store.held.reads import Reads
    from store.message import StoredMessage
    from store.puts import AppendPath
    from store.state import Entry, Rows, Tables
    from store.topics import Topics

_PAGE = 1000


class RolledHalves(WaitingKind):
    """Halves as a kind of held record. A moved half keeps its row: checks, next check, nonce, and
    the offset where it began. Thread: that of retention."""

    def __init__(
        self, appends: AppendPath, topics: Topics, state: Rows, tables: Tables, reads: Reads
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
        for at in range(0, len(places), TOGETHER):
            yield from self._read(places[at : at + TOGETHER])

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
