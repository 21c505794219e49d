"""What becomes of dead letters: they are listed, put again to where they came from, deleted.

Queue 0 of the topic %DLQ% and the group has them. Which of them have ended is rows of the state
(`x` and `y` of store/state/rows.py), so whoever puts one again says in the same append that it has
ended: it happens once, whoever else tries, and whatever crashes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

from store.errors import (
    CorruptRecordError,
    DamagedQueueError,
    InvalidArgumentError,
    OffsetOutOfRangeError,
    UnknownGroupError,
    UnknownTopicError,
)
from store.format import check_group
from store.groups.dead_letters import DeadLetter, letter_of, redriven, topic_of
from store.metadata import SharedGroup
from store.state import NOWHERE, LetterEnd, LetterEnded, runs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from store.groups.positions import Reads
    from store.groups.turn import Turn
    from store.groups.turns import Turns
    from store.puts import AppendPath
    from store.state import Tables

#: Dead letters of one call.
MOST_LETTERS = 1000
#: Those that are looked at, or read, together.
_TOGETHER = 64
_READ_BYTES = 4 << 20


class _UnseenError(Exception):
    """A dead letter was moved to a place that is not dispatched yet: look again then."""


class Redriven(NamedTuple):
    """What a call put again."""

    redriven: int
    left: int  # of what they came from is not there any more, or is not known
    complete: bool  # False: there may be more behind `last`
    last: int  # offset of the last dead letter that was looked at; -1: of none
    end_offset: int  # certain once the log is durable up to it: see MessageStore.is_durable


@dataclass(frozen=True)
class _Round:
    """What one turn did, and what those before it of the same call did."""

    redriven: int = 0
    left: int = 0
    last: int = -1
    is_last: bool = False  # no letters are behind, of those that are dispatched


class Letters:
    """Dead letters of all groups. Thread: any. Changes are decided in turns."""

    def __init__(
        self,
        appends: AppendPath,
        tables: Tables,
        now_ms: Callable[[], int],
        reads: Reads,
        turns: Turns,
    ) -> None:
        """`tables`: at the dispatch point."""
        # Constant after construction.
        self._appends = appends
        self._tables = tables
        self._now_ms = now_ms
        self._reads = reads
        self._run = turns.run

    # --- looking ---------------------------------------------------------------------------

    def count(self, group: str) -> int:
        """Those that are neither redriven nor deleted, and are kept."""
        low, high = self._places(group)
        return high - low - self._tables.count_ended(topic_of(group), low, high)

    def page(self, group: str, after: int = -1, limit: int = 100) -> list[DeadLetter]:
        """The oldest first, from above `after` on.

        Raises InvalidArgumentError, UnknownGroupError; CorruptRecordError, DamagedQueueError.
        """
        if not 1 <= limit <= MOST_LETTERS:
            raise InvalidArgumentError("limit", f"{limit} is outside 1 to {MOST_LETTERS}")
        while True:
            places = self._places(group)
            every = _candidates(topic_of(group), self._tables, places, after)
            try:
                return list(islice(self._living(group, self._tables, places, every), limit))
            except _UnseenError:
                self._appends.wait_acknowledged(self._appends.log.appended_offset)

    def _places(self, group: str) -> tuple[int, int]:
        """Where the first dead letter of a group may be, and behind the last. Raises
        InvalidArgumentError, UnknownGroupError."""
        check_group(group)
        self._appends.check_open()
        try:
            ((low, high),) = self._reads.bounds([(topic_of(group), 0)])
        except UnknownTopicError:
            if self._tables.group(group) is None:
                raise UnknownGroupError(group) from None
            return 0, 0
        return low, high

    def _living(
        self,
        group: str,
        tables: Tables,
        places: tuple[int, int],
        candidates: Iterator[Sequence[tuple[int, int]]],
    ) -> Iterator[DeadLetter]:
        """Those that are dead letters. Raises _UnseenError."""
        topic = topic_of(group)
        settings = tables.shared_group(group) or SharedGroup()
        since_ms = self._now_ms() - settings.dead_letters_keep_ms
        for found in candidates:
            if any(place >= places[1] for _, place in found):
                raise _UnseenError
            records = self._read(topic, [place for _, place in found])
            for offset, place in found:
                if place not in records:
                    continue  # it is not kept
                letter = letter_of(place, records[place])
                # One with another name was moved here, and is found by that.
                if letter.offset == offset and letter.time_ms > since_ms:
                    yield letter

    def _read(self, topic: str, places: Sequence[int]) -> dict[int, bytes]:
        """Records at these places; those that are not dispatched, or not kept, are missing."""
        found: dict[int, bytes] = {}
        for first, mask in runs_of(sorted(places)):
            at, behind = first, first + mask.bit_length()
            while at < behind:
                try:
                    pulled = self._reads.pull(
                        *(topic, 0, at),
                        max_messages=behind - at,
                        max_bytes=_READ_BYTES,
                        tag_filter=None,
                    )
                except OffsetOutOfRangeError as error:
                    if at >= error.min_offset:
                        break
                    at = error.min_offset
                    continue
                found.update(zip(pulled.queue_offsets, pulled.records, strict=True))
                if pulled.next_offset == at:
                    break
                at = pulled.next_offset
        return found

    # --- changing --------------------------------------------------------------------------

    def redrive(
        self, group: str, offsets: Sequence[int], max_messages: int, after: int, *, wait: bool
    ) -> Redriven:
        """See SharedGroups.redrive."""
        _check_offsets(offsets)
        if not 1 <= max_messages <= MOST_LETTERS:
            raise InvalidArgumentError(
                "max_messages", f"{max_messages} is outside 1 to {MOST_LETTERS}"
            )
        self._places(group)
        wanted = sorted(set(offsets))
        done = _Round(last=after)
        end = self._appends.log.appended_offset
        while not done.is_last and done.redriven + done.left < max_messages:
            # What another call moved is read at its new place.
            self._appends.wait_acknowledged(end)
            plan = partial(self._redrive_some, group, wanted, max_messages, done)
            done, end = self._run(plan)
        if wait:
            self._appends.wait_acknowledged(end)
        return Redriven(done.redriven, done.left, done.is_last, done.last, end)

    def _redrive_some(
        self, group: str, wanted: Sequence[int], most: int, done: _Round, turn: Turn
    ) -> _Round:
        topic = topic_of(group)
        try:
            turn.place(topic)
        except UnknownTopicError:
            return replace(done, is_last=True)
        places = self._places(group)
        if wanted:
            behind = [each for each in wanted if each > done.last]
            candidates = _named(topic, turn.tables, places, behind)
        else:
            candidates = _candidates(topic, turn.tables, places, done.last)
        try:
            for letter in self._living(group, turn.tables, places, candidates):
                if done.redriven + done.left >= most or not turn.takes_messages:
                    return done
                is_done = self._redrive_one(group, letter, places[0], turn)
                done = _Round(done.redriven + is_done, done.left + (not is_done), letter.offset)
        except _UnseenError:
            return done
        return replace(done, is_last=True)

    def _redrive_one(self, group: str, letter: DeadLetter, first: int, turn: Turn) -> bool:
        """Whether it goes where it came from."""
        try:
            origin = turn.place(letter.topic)
            message = redriven(letter, origin.queue_count)
        except (UnknownTopicError, InvalidArgumentError):
            return False
        ended = LetterEnded(
            *(topic_of(group), letter.offset, letter.place, NOWHERE, first), LetterEnd.REDRIVEN
        )
        turn.append(ended, message)
        return True

    def delete(self, group: str, offsets: Sequence[int], *, wait: bool) -> tuple[int, int]:
        """See SharedGroups.delete_dead_letters; with the log's end then."""
        _check_offsets(offsets)
        if not offsets:
            raise InvalidArgumentError("offsets", "is empty")
        self._places(group)
        count, end = self._run(partial(self._delete, group, sorted(set(offsets))))
        if wait:
            self._appends.wait_acknowledged(end)
        return count, end

    def _delete(self, group: str, offsets: Sequence[int], turn: Turn) -> int:
        topic = topic_of(group)
        try:
            turn.place(topic)
        except UnknownTopicError:
            return 0
        places = self._places(group)
        count = 0
        for offset, place in chain.from_iterable(_named(topic, turn.tables, places, offsets)):
            if place == offset and self._is_moved_here(topic, place):
                continue
            turn.add(LetterEnded(topic, offset, place, NOWHERE, places[0], LetterEnd.DELETED))
            count += 1
        return count

    def _is_moved_here(self, topic: str, place: int) -> bool:
        """Whether the dead letter there has another name. One that cannot be read has none: it may
        be deleted all the same."""
        try:
            record = self._read(topic, [place]).get(place)
        except (CorruptRecordError, DamagedQueueError):
            return False
        return record is not None and letter_of(place, record).offset != place


def _candidates(
    topic: str, tables: Tables, places: tuple[int, int], after: int
) -> Iterator[Sequence[tuple[int, int]]]:
    """Offsets above `after` that letters may have, and where they would be; some at a time.

    Those that were moved lie behind all others, and are older than those: the log lets its oldest
    go first.
    """
    while found := tables.moved_letters(topic, after, _TOGETHER):
        yield [each for each in found if each[1] >= places[0]]
        after = found[-1][0]
    live = tables.live_places(topic, max(after + 1, places[0]), places[1])
    while some := list(islice(live, _TOGETHER)):
        yield [(place, place) for place in some]


def _named(
    topic: str, tables: Tables, places: tuple[int, int], offsets: Sequence[int]
) -> Iterator[Sequence[tuple[int, int]]]:
    """The same of these offsets."""
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


def _check_offsets(offsets: Sequence[int]) -> None:
    if len(offsets) > MOST_LETTERS:
        raise InvalidArgumentError("offsets", f"{len(offsets)} offsets, not {MOST_LETTERS} at most")
    for at, offset in enumerate(offsets):
        if not 0 <= offset < 1 << 63:
            raise InvalidArgumentError(f"offsets[{at}]", f"{offset} is no queue offset")
