"""Finds and reads dead letters.

They are in queue 0 of the topic `%DLQ%` plus the group's name. Rows of the state (`x` and `y` of
store/state/rows.py) record which have ended and which were moved. A moved letter keeps the offset
of its first place as its name.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from store.base import check_within
from store.errors import (
    CorruptRecordError,
    DamagedQueueError,
    GroupKindError,
    UnknownGroupError,
    UnknownTopicError,
)
from store.format import check_group
from store.groups.dead_letters import DeadLetter, letter_of, topic_of
from store.groups.limits import MOST_LETTERS
from store.held import read_places
from store.metadata import SharedGroup

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from store.log import StoreTimes
    from store.puts import AppendPath
    from store.reads import ReadPath
    from store.state import Tables

#: Letters that are looked up or read together.
_TOGETHER = 64
_READ_BYTES = 4 << 20
_LAST_OFFSET = (1 << 63) - 1


class UnseenError(Exception):
    """A dead letter was moved to a place that is not dispatched yet. Retry after dispatch."""


class LetterBox:
    """Dead letters of all groups. Thread: any."""

    def __init__(
        self,
        appends: AppendPath,
        tables: Tables,
        times: StoreTimes,
        reads: ReadPath,
    ) -> None:
        """`tables`: the state at the dispatch point."""
        # Constant after construction.
        self._appends = appends
        self._tables = tables
        self._times = times
        self._reads = reads

    def count(self, group: str) -> int:
        """Number of kept letters that are neither redriven nor deleted."""
        low, high = self.places(group)
        return high - low - self._tables.count_ended(topic_of(group), low, high)

    def page(self, group: str, after: int, limit: int) -> list[DeadLetter]:
        """See SharedGroups.list_dead_letters."""
        check_within("limit", limit, 1, MOST_LETTERS)
        while True:
            places = self.places(group)
            if not any(places) and self._tables.shared_group(group) is None:
                raise GroupKindError(group, is_shared=False)
            topic = topic_of(group)
            every = candidates(topic, self._tables, places, after)
            ended = self._tables.count_ended(topic, *places)
            try:
                letters = list(islice(self.living(group, self._tables, places, every), limit))
            except UnseenError:
                self._appends.wait_acknowledged(self._appends.log.appended_offset)
                continue
            # One that was moved meanwhile is found twice, or not at all.
            if self._tables.count_ended(topic, *places) == ended:
                return letters

    def places(self, group: str) -> tuple[int, int]:
        """Queue offsets in the dead-letter topic, from first to last exclusive, that the topic
        keeps and that are dispatched. Raises InvalidArgumentError, UnknownGroupError."""
        check_group(group)
        self._appends.check_open()
        try:
            ((low, high),) = self._reads.bounds([(topic_of(group), 0)])
        except UnknownTopicError:
            if self._tables.group(group) is None:
                raise UnknownGroupError(group) from None
            return 0, 0
        return low, high

    def living(
        self,
        group: str,
        tables: Tables,
        places: tuple[int, int],
        found: Iterator[Sequence[tuple[int, int]]],
    ) -> Iterator[DeadLetter]:
        """Yield the live dead letters among the candidates `found`. Raises UnseenError."""
        since_ms = self.since_ms(group, tables)
        for some in found:
            if any(place >= places[1] for _, place in some):
                raise UnseenError
            letters = self.read(topic_of(group), tables, [place for _, place in some])
            for offset, place in some:
                letter = letters.get(place)
                # A letter with another name was moved here; its own candidate finds it.
                if letter and letter.offset == offset and letter.time_ms > since_ms:
                    yield letter

    def since_ms(self, group: str, tables: Tables) -> int:
        """Letters that became dead at or before this time, ms since 1970, have expired."""
        settings = tables.shared_group(group) or SharedGroup()
        return self._times.now_ms() - settings.dead_letters_keep_ms

    def is_moved_here(self, topic: str, tables: Tables, place: int) -> bool:
        """Whether the letter at this place was moved there, so its name differs from the place. An
        unreadable letter counts as not moved, so it can still be deleted."""
        try:
            letter = self.read(topic, tables, [place]).get(place)
        except (CorruptRecordError, DamagedQueueError):
            return False
        return letter is not None and letter.offset != place

    def read(self, topic: str, tables: Tables, places: Sequence[int]) -> dict[int, DeadLetter]:
        """Read the letters at these places. The result lacks those that are not dispatched yet or
        no longer kept."""
        return {
            place: self._letter(topic, tables, place, record)
            for place, record in read_places(self._reads, topic, places).items()
        }

    def _letter(self, topic: str, tables: Tables, place: int, record: bytes) -> DeadLetter:
        letter = letter_of(place, record, self._times)
        if letter.offset != place and tables.moved_letter(topic, letter.offset) != place:
            return letter._replace(offset=place)  # a property that this store did not write
        return letter


def candidates(
    topic: str, tables: Tables, places: tuple[int, int], after: int
) -> Iterator[Sequence[tuple[int, int]]]:
    """Yield, in chunks, possible letters above `after`: the offset that names each, and its place.

    Ascending by name, oldest first. Moved letters come first, because only the oldest are moved.
    """
    if after >= _LAST_OFFSET:
        return
    while found := tables.moved_letters(topic, after, _TOGETHER):
        yield found
        after = found[-1][0]
    live = tables.live_places(topic, max(after + 1, places[0]), places[1])
    while some := list(islice(live, _TOGETHER)):
        yield [(place, place) for place in some]


def named(
    topic: str, tables: Tables, places: tuple[int, int], offsets: Sequence[int]
) -> Iterator[Sequence[tuple[int, int]]]:
    """Like `candidates`, for the given offsets."""
    low, high = places
    for first in range(0, len(offsets), _TOGETHER):
        found = []
        for offset in offsets[first : first + _TOGETHER]:
            place = tables.moved_letter(topic, offset)
            if place is not None:
                found.append((offset, place))
            elif low <= offset < high:
                found += [(each, each) for each in tables.live_places(topic, offset, offset + 1)]
        yield found
