"""Selects the entries about one message, and turns them into events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.state import (
    DEAD_LETTERS,
    NEVER,
    Committed,
    Finished,
    GroupEnded,
    HalfBegun,
    HalfChecked,
    HalfEnd,
    HalfEnded,
    HalfMoved,
    Leased,
    LetterEnd,
    LetterEnded,
    Passed,
    Reset,
    Seen,
    TimerEnd,
    TimerEnded,
    TimerSet,
    TopicEnded,
    happening,
)
from store.trace.cursor import Cursor
from store.trace.story import OF_GROUPS, Event, Place, What

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from store.state import Entry
    from store.trace.records import StateRecord

_TIMER_ENDS = {
    TimerEnd.FIRED: What.FIRED,
    TimerEnd.RECALLED: What.RECALLED,
    TimerEnd.GONE: What.TIMER_TOPIC_GONE,
    TimerEnd.LOST: What.TIMER_LOST,
    TimerEnd.MOVED: What.MOVED,
}
_HALF_ENDS = {
    HalfEnd.COMMITTED: What.COMMITTED,
    HalfEnd.ROLLED_BACK: What.ROLLED_BACK,
    HalfEnd.TOPIC_GONE: What.TOPIC_GONE,
    HalfEnd.RECORD_GONE: What.RECORD_GONE,
    HalfEnd.HANDED_BACK: What.HANDED_BACK,
}
_LETTER_ENDS = {
    LetterEnd.REDRIVEN: What.REDRIVEN,
    LetterEnd.DELETED: What.DELETED,
    LetterEnd.EXPIRED: What.EXPIRED,
    LetterEnd.GIVEN_UP: What.LETTER_GIVEN_UP,
    LetterEnd.MOVED: What.MOVED,
}
#: Entries whose append has a message, which the traced one became.
BECOMES = (
    *(What.DEAD, What.FIRED, What.COMMITTED, What.HANDED_BACK),
    *(What.REDRIVEN, What.MOVED),
)


class Matching:
    """Events of one message, record by record. Thread: one."""

    def __init__(
        self,
        places: Sequence[Place],
        sees: Callable[[str], bool],
        *,
        timer: tuple[int, int] | None = None,
        half: int | None = None,
        letter: tuple[str, int] | None = None,
        cursor: Cursor,
    ) -> None:
        """`sees`: whether a group may be shown. `timer`: due time and name. `letter`: its topic and
        its name. `cursor`: from the call before."""
        self._sees = sees
        self._timer = timer
        self._half = half
        self._letter = letter
        self._numbers = {each[:2]: number for number, each in enumerate(places)}
        self._places = {each[:2]: each for each in places}
        self._ended = list(cursor.ended)
        for number in cursor.ended:
            self._places.pop(places[number][:2], None)
        # Records without these names are not about the message; None: names do not decide it.
        self._names: set[bytes] | None = None
        if timer is None and half is None:
            self._names = {each.topic.encode() for each in places}
        # Groups and places that something was said of, and what was said last; None: the group, in
        # order, has looked at the message.
        self._last: dict[tuple[str, Place], What | None] = {}
        # How often they had received the message by then, as far as known.
        self._deliveries: dict[tuple[str, Place], int] = {}
        # Dead letters that it became: by topic and name, the group and where it was.
        self._letters: dict[tuple[str, int], tuple[str, Place]] = {}
        for group, number, what, deliveries in cursor.said:
            if sees(group):  # the caller may have named others
                self._said(group, places[number], what, deliveries)
        for group, number, name in cursor.letters:
            if sees(group):
                self.became_letter(group, places[number], name)

    def cursor(self, at: int) -> Cursor:
        """A cursor for a search that continues at that record."""
        said = [
            (group, self._numbers[place[:2]], what, self.deliveries(group, place))
            for (group, place), what in self._last.items()
            if what is not None
        ]
        letters = [
            (group, self._numbers[place[:2]], name)
            for (_, name), (group, place) in self._letters.items()
        ]
        return Cursor(at, self._ended, said, letters)

    def deliveries(self, group: str, place: Place) -> int | None:
        """Number of deliveries to the group, by the records so far; None if they do not say."""
        return self._deliveries.get((group, place))

    def became_letter(self, group: str, place: Place, name: int) -> None:
        """Note that the message became that dead letter of the group, so that the end of the letter
        is part of its story."""
        topic = DEAD_LETTERS + group
        self._letters[topic, name] = group, place
        if self._names is not None:
            self._names.add(topic.encode())

    def may_have(self, record: StateRecord) -> bool:
        """Whether the record is worth decoding."""
        names = self._names
        return names is None or any(name in record.body for name in names)

    def events(self, entry: Entry, record: StateRecord) -> list[Event]:
        """The events of the message in this entry of the record."""
        time_ms, at = record.store_time_ms, record.physical_offset
        match entry:
            case Leased() | Finished():
                return self._of_lease(entry, record)
            case Seen(group, topic, queue_id, first, mask):
                place = self._place(topic, queue_id, group)
                if place is not None and first <= place.offset < first + mask.bit_length():
                    self._last.setdefault((group, place), None)
                return []
            case Passed(group, topic, queue_id, offset):
                return self._passed(group, self._place(topic, queue_id, group), offset, record)
            case Committed(group, topic, queue_id, offset):
                place = self._place(topic, queue_id, group)
                what = What.READ if place and place.offset < offset else What.READ_AGAIN
                if place is None or self._last.get((group, place)) is what:
                    return []
                return [self._at(what, group, place, offset, record)]
            case Reset(group, topic, queue_id, offset):
                place = self._place(topic, queue_id, group)
                if place is None:
                    return []
                what = What.RESET if place.offset < offset else What.RESET_BACK
                return [self._at(what, group, place, offset, record)]
            case GroupEnded(group):
                known = [place for name, place in self._last if name == group]
                for place in known:
                    del self._last[group, place]
                    self._deliveries.pop((group, place), None)
                return [Event(What.GROUP_DELETED, time_ms, at, group, place) for place in known]
            case TopicEnded(topic):
                return self._end(topic, record)
            case _:
                return self._of_waiting(entry, record)

    def _of_lease(self, entry: Leased | Finished, record: StateRecord) -> list[Event]:
        group = entry.group
        place = self._place(entry.topic, entry.queue_id, group)
        said = happening(entry)
        if place is None or not said.has(place.offset):
            end = said.first + said.mask.bit_length()
            return self._passed(group, place, end, record) if isinstance(entry, Leased) else []
        what = OF_GROUPS[said.what]
        self._said(group, place, what, said.delivery)
        return [
            Event(
                *(what, record.store_time_ms, record.physical_offset, group, place),
                *(said.delivery or 0, said.until_ms or 0),
                nonce=entry.lease.nonce if isinstance(entry, Leased) else 0,
            )
        ]

    def _passed(
        self, group: str, place: Place | None, next_offset: int, record: StateRecord
    ) -> list[Event]:
        """The group continues at `next_offset`: earlier messages that it never received are done.
        Reported once."""
        if place is None or place.offset >= next_offset:
            return []
        key = group, place
        if key in self._last and self._last[key] is not What.RESET_BACK:
            return []
        return [self._at(What.PASSED, group, place, next_offset, record)]

    def _of_waiting(self, entry: Entry, record: StateRecord) -> list[Event]:
        """Events of a delayed message, a transaction, or a dead letter."""
        time_ms, at = record.store_time_ms, record.physical_offset
        match entry:
            case TimerSet(due_ms=due_ms, place=timer) if self._timer == (due_ms, timer):
                return [Event(What.TIMER_SET, time_ms, at, until_ms=due_ms)]
            case TimerEnded(due_ms, timer, _, how) if self._timer == (due_ms, timer):
                return [Event(_TIMER_ENDS[how], time_ms, at)]
            case HalfBegun(group=group, half=half, check_ms=check_ms) if half == self._half:
                group = group if self._sees(group) else ""
                return [Event(What.BEGUN, time_ms, at, group, until_ms=check_ms)]
            case HalfChecked(half, checks, check_ms) if half == self._half:
                if check_ms == NEVER:
                    return [Event(What.GAVE_UP, time_ms, at, delivery=checks)]
                return [Event(What.CHECKED, time_ms, at, delivery=checks, until_ms=check_ms)]
            case HalfMoved(half) if half == self._half:
                return [Event(What.MOVED, time_ms, at)]
            case HalfEnded(half, _, how) if half == self._half:
                return [Event(_HALF_ENDS[how], time_ms, at)]
            case LetterEnded(topic=topic, letter=letter, how=how) if self._letter == (
                topic,
                letter,
            ):
                return [Event(_LETTER_ENDS[how], time_ms, at)]
            case LetterEnded(topic=topic, letter=letter, how=how) if how is not LetterEnd.MOVED:
                if (became := self._letters.pop((topic, letter), None)) is not None:
                    return [Event(_LETTER_ENDS[how], time_ms, at, *became)]
        return []

    def _place(self, topic: str, queue_id: int, group: str) -> Place | None:
        place = self._places.get((topic, queue_id))
        return place if place is not None and self._sees(group) else None

    def _said(self, group: str, place: Place, what: What, deliveries: int | None) -> None:
        self._last[group, place] = what
        if deliveries is not None:
            self._deliveries[group, place] = deliveries
        if self._names is not None:
            self._names.add(group.encode())  # the end of a group names no topic

    def _at(
        self, what: What, group: str, place: Place, position: int, record: StateRecord
    ) -> Event:
        self._said(group, place, what, self._deliveries.get((group, place), 0))
        time_ms, at = record.store_time_ms, record.physical_offset
        return Event(what, time_ms, at, group, place, position=position)

    def _end(self, topic: str, record: StateRecord) -> list[Event]:
        """A later message at that place is another one."""
        gone = [place for place in self._places.values() if place.topic == topic]
        for place in gone:
            del self._places[place[:2]]
            self._ended.append(self._numbers[place[:2]])
        time_ms, at = record.store_time_ms, record.physical_offset
        return [Event(What.QUEUE_DELETED, time_ms, at, place=place) for place in gone]
