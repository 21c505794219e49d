"""Halves are kept until they are decided, whatever the log keeps: see rolling.py."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from store.format import unpack_record
from store.held.records import first_place, moved, read_places
from store.puts import Step
from store.state import HALVES_TOPIC, HalfMoved, HalfTables

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from store.held.reads import Reads
    from store.held.rolling import Done
    from store.message import Message
    from store.puts import AppendPath
    from store.state import Entry, Rows, Tables
    from store.topics import Topics

_TOGETHER = 256
_READ_BYTES = 4 << 20
_PAGE = 1000


class RolledHalves:
    """A Kind of rolling.py. Their rows go with them: checks, the next check, nonce, and where the
    topic began that they are for."""

    def __init__(
        self, appends: AppendPath, topics: Topics, state: Rows, tables: Tables, reads: Reads
    ) -> None:
        """`state`, `tables`: at the dispatch point."""
        # Constant after construction.
        self._appends = appends
        self._topics = topics
        self._halves = HalfTables(state)
        self._tables = tables
        self._reads = reads
        #: Since the store was opened; read freely.
        self.moved = 0
        self.lost = 0

    def topics(self) -> Iterator[str]:
        if self._tables.topic(HALVES_TOPIC) is not None and self._halves.count().open:
            yield HALVES_TOPIC

    def said(self, topic: str) -> str:
        del topic
        return "messages of open transactions"

    def live_places(self, topic: str, first: int, behind: int) -> Iterator[int]:
        """Those that were moved have names below, and places behind, the others."""
        del topic
        places: list[int] = []
        name = 0
        while rows := self._halves.open_from(name, _PAGE):
            places += [row.place for row in rows if first <= row.place < behind]
            name = rows[-1].half + 1
            if name > behind:  # no place is below its name
                break
        return iter(sorted(places))

    def move_some(self, topic: str, behind: int, done: Done) -> Done:
        assert done.at is not None, "something is left"
        places = list(islice(self.live_places(topic, done.at, behind), _TOGETHER + 1))
        rest = places[_TOGETHER:]
        found = read_places(self._reads, topic, places[:_TOGETHER])
        names: dict[int, int] = {}
        messages: dict[int, Message] = {}
        size = 0
        for place, record in found.items():
            if size > _READ_BYTES:
                rest = [min(place, *rest)]
                break
            was = unpack_record(record, verify=False)
            messages[place] = moved(was)
            names[place] = first_place(was)
            size += len(record)
        steps: list[Step] = []

        def decide() -> Sequence[Step]:
            steps.clear()
            view = HalfTables(self._topics.view)
            at = self._topics.next_own(topic)
            entries: list[Entry] = []
            again: list[Message] = []
            for place, message in messages.items():
                row = view.open(names[place])
                if row is not None and row.place == place:
                    entries.append(HalfMoved(row.half, at + len(again)))
                    again.append(message)
            if entries:
                steps.append(Step(entries, again))
            return steps

        self._appends.wait_acknowledged(self._appends.decide_steps(decide))
        count = sum(len(step.messages) for step in steps)
        self.moved += count
        return done._replace(
            at=rest[0] if rest else None, moved=done.moved + count, bytes=done.bytes + size
        )

    def given_up(self, topic: str, count: int) -> None:
        del topic
        self.lost += count
