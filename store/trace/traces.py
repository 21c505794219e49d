"""Traces: finds a message and the state records after it; rows give the current state."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from store.errors import (
    CorruptRecordError,
    InvalidArgumentError,
    MessageNotFoundError,
    StoreClosedError,
    UnknownTopicError,
)
from store.format import dispatch_request, place_of, unpack_record
from store.groups import LETTER_OFFSET
from store.held import (
    GROUP,
    TIMER_DELIVER,
    TIMER_OUT,
    first_place,
    number_of,
    read_places,
    target_of,
    unpack_handle,
    unpack_transaction_id,
)
from store.light_queue import is_light
from store.state import (
    DEAD_LETTERS,
    HALVES_TOPIC,
    NOBODY,
    TIMER_TOPIC,
    Finished,
    HalfBegun,
    HalfEnd,
    HalfEnded,
    HalfTables,
    LetterEnded,
    TimerEnded,
    TimerSet,
    group_made_at,
    timer_key,
    unpack_entries,
)
from store.trace.cursor import Cursor, pack_cursor, unpack_cursor
from store.trace.matching import BECOMES, Matching
from store.trace.records import (
    append_of,
    first_record_from,
    id_of,
    records_from,
    state_bounds,
)
from store.trace.story import Event, Found, Now, Place, Reader, Standing, Story, Subject, What

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from store.consume_queue import ConsumeQueueStore
    from store.log import CommitLog
    from store.message import StoredMessage
    from store.reads import ReadPath
    from store.state import Entry, Rows, Tables
    from store.trace.records import StateRecord

#: Approximate limits of one call: records of the state, events, and time.
MOST_RECORDS = 50_000
MOST_EVENTS = 1000
MOST_S = 0.5
#: Groups and places of which it is said what the message is to them now.
MOST_STANDINGS = 1000


class Traces:
    """Finds messages and builds their traces. Thread: any. Takes no lock, stores nothing."""

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueueStore,
        rows: Rows,
        tables: Tables,
        reads: ReadPath,
        begins_at: Callable[[str], int | None],
        now_ms: Callable[[], int],
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`rows`, `tables`: at the dispatch point. `begins_at`: see Topics.
        `now_ms`: the time that leases use."""
        # Constant after construction.
        self._log = log
        self._queues = queues
        self._halves = HalfTables(rows)
        self._tables = tables
        self._begins_at = begins_at
        self._reads = reads
        self._now_ms = now_ms
        self._monotonic_s = monotonic_s

    # --- which message ---------------------------------------------------------------------

    def message(self, physical_offset: int) -> Found:
        """Find the message of the record there. Raises MessageNotFoundError, CorruptRecordError,
        DamagedQueueError."""
        try:
            record, hidden = self._reads.find(physical_offset)
        except MessageNotFoundError as error:
            if physical_offset < self._log.start_offset:
                raise MessageNotFoundError(
                    str(physical_offset),
                    f"retention has removed it: the log begins at {self._log.start_offset}",
                ) from None
            raise error from None
        was = unpack_record(record, verify=False)
        if was.topic in (TIMER_TOPIC, HALVES_TOPIC):
            with suppress(InvalidArgumentError):  # another program wrote it
                return self._waiting(was)
        places = [Place(was.topic, was.queue_id, was.queue_offset)]
        places += [Place(name, 0, at) for name, at in dispatch_request(record, 0).light_queues]
        now = Now.READABLE
        if hidden is not None:
            now = Now.SUPERSEDED if hidden.is_superseded else Now.NOT_KEPT
        due_ms = number_of(was.properties, TIMER_DELIVER, 0)
        found = Found(_subject(was, was.topic, tuple(places), now, due_ms), was.physical_offset)
        if was.topic.startswith(DEAD_LETTERS):
            name = number_of(was.properties, LETTER_OFFSET, was.queue_offset)
            found = found._replace(letter=(was.topic, name))
        return found._replace(origin=tuple(self._origin(was)))

    def timer(self, topic: str, handle: str) -> Found:
        """Find a delayed message by the handle that its put returned. Raises InvalidArgumentError,
        MessageNotFoundError, CorruptRecordError, DamagedQueueError."""
        named = unpack_handle(topic, handle, "handle")
        (row,) = self._tables.timers([timer_key(named.due_ms, named.timer)])
        is_pending = row is not None and row.nonce == named.nonce
        was = self._at_first(TIMER_TOPIC, named.timer, row.place if row and is_pending else None)
        found = self._waiting(was)
        if not is_pending and (named.due_ms, named.nonce) not in self._set_in(was):
            raise MessageNotFoundError(handle, "the log has no such delayed message")
        return found

    def transaction(self, transaction_id: str) -> Found:
        """Find a message of a transaction. Raises like `timer`."""
        named = unpack_transaction_id(transaction_id)
        row = self._halves.open(named.half)
        is_open = row is not None and row.nonce == named.nonce
        was = self._at_first(HALVES_TOPIC, named.half, row.place if row and is_open else None)
        found = self._waiting(was)
        if not is_open and (0, named.nonce) not in self._set_in(was):
            raise MessageNotFoundError(transaction_id, "the log has no such transaction")
        return found

    def _at_first(self, topic: str, name: int, place: int | None) -> StoredMessage:
        """The held record at its first place, or at its current one."""
        for wanted in (name, place):
            found = {} if wanted is None else read_places(self._reads, topic, [wanted])
            for record in found.values():
                return unpack_record(record, verify=False)
        raise MessageNotFoundError(
            f"{topic} {name}", f"retention removed it: the log begins at {self._log.start_offset}"
        )

    def _set_in(self, was: StoredMessage) -> set[tuple[int, int]]:
        """Due times and nonces set by the append of the record."""
        append = append_of(self._log, was.physical_offset)
        said: set[tuple[int, int]] = set()
        for entry, at, _ in append.pairs if append else ():
            if at == was.physical_offset:
                if isinstance(entry, TimerSet):
                    said.add((entry.due_ms, entry.nonce))
                elif isinstance(entry, HalfBegun):
                    said.add((0, entry.nonce))
        return said

    def _waiting(self, was: StoredMessage) -> Found:
        """Find from a held record. Raises InvalidArgumentError for one that is not ours."""
        topic, name = target_of(was.properties).topic, first_place(was)
        place = place_of(self._log.read_at(was.physical_offset), 0)
        begin = was.physical_offset - (place.distance if place else 0)
        if was.topic == TIMER_TOPIC:
            due_ms = number_of(was.properties, TIMER_OUT, 0)
            (row,) = self._tables.timers([timer_key(due_ms, name)])
            now = Now.ENDED if row is None else Now.PENDING
            subject = _subject(was, topic, (), now, due_ms)
            return Found(subject, begin, timer=(due_ms, name))
        half = self._halves.open(name)
        now = Now.ENDED
        if half is not None:
            now = Now.GIVEN_UP if half.is_given_up else Now.OPEN
        group = was.properties.get(GROUP, "")
        subject = _subject(was, topic, (), now)._replace(group=group)
        return Found(subject, begin, half=name)

    def _origin(self, was: StoredMessage) -> Iterator[Event]:
        """What the message was before, according to its append."""
        with suppress(MessageNotFoundError, CorruptRecordError):  # its begin has left the log
            append = append_of(self._log, was.physical_offset)
            pairs = append.pairs if append is not None else ()
            entry = next((entry for entry, at, _ in pairs if at == was.physical_offset), None)
            if append is None or entry is None:
                return
            at, time_ms = append.begin, append.store_time_ms
            match entry:
                case TimerEnded(timer=timer):
                    yield from self._before(TIMER_TOPIC, timer, What.TIMER_SET)
                    yield Event(What.FIRED, time_ms, at)
                case HalfEnded(half=half, how=how):
                    yield from self._before(HALVES_TOPIC, half, What.BEGUN)
                    is_back = how is HalfEnd.HANDED_BACK
                    yield Event(What.HANDED_BACK if is_back else What.COMMITTED, time_ms, at)
                case LetterEnded(topic=topic) if topic != was.topic:
                    letter_id = self._id_at(topic, 0, entry.place)
                    yield Event(What.REDRIVEN, time_ms, at, message_id=letter_id)
                case Finished(group, topic, queue_id, first):
                    place = Place(topic, queue_id, first)
                    buried_id = self._id_at(*place)
                    yield Event(What.BURIED, time_ms, at, group, place, message_id=buried_id)

    def _before(self, topic: str, name: int, what: What) -> Iterator[Event]:
        """Yield the event that stored it as held, if the log still has it."""
        for record in read_places(self._reads, topic, [name]).values():
            was = unpack_record(record, verify=False)
            due_ms = number_of(was.properties, TIMER_OUT, 0)
            yield Event(
                *(what, was.store_time_ms, was.physical_offset),
                until_ms=due_ms,
                message_id=id_of(was),
            )

    def _id_at(self, topic: str, queue_id: int, offset: int) -> str:
        """The id of the message there; "" if it left the log."""
        with suppress(UnknownTopicError, MessageNotFoundError, CorruptRecordError):
            for _, unit in self._queues.read_units(topic, queue_id, offset, 1):
                return id_of(unpack_record(self._log.read_at(unit.physical_offset), verify=False))
        return ""

    # --- its story -------------------------------------------------------------------------

    def story(
        self,
        found: Found,
        cursor: bytes | None = None,
        sees: Callable[[str], bool] = lambda _: True,
    ) -> Story:
        """The trace of the message, as far as one call goes: see MOST_RECORDS, MOST_EVENTS, MOST_S.

        `cursor`: from the trace that this call continues. `sees`: whether a group may be shown.
        Blocks for up to MOST_S seconds, and reads the disk. Raises InvalidArgumentError,
        CorruptRecordError, DamagedQueueError.
        """
        subject = found.subject
        if subject.group and not sees(subject.group):
            subject = subject._replace(group="")
        bounds = state_bounds(self._reads)
        if cursor is None:
            start = Cursor(first_record_from(self._queues, bounds, found.begin), [], [])
        else:
            start = unpack_cursor(cursor, len(subject.places), bounds[1])
        at = max(start.at, bounds[0])
        matching = Matching(
            *(subject.places, sees),
            timer=found.timer,
            half=found.half,
            letter=found.letter,
            cursor=start,
        )
        events = [] if cursor else [each for each in found.origin if _may_tell(each, sees)]
        told_ms, is_whole = 0, True
        stop_s, most = self._monotonic_s() + MOST_S, at + MOST_RECORDS
        for some in records_from(self._reads, at, bounds[1]):
            for record in some:
                at, told_ms = record.queue_offset + 1, record.store_time_ms
                if matching.may_have(record):
                    events += self._events(matching, record)
            if at < bounds[1] and (
                at >= most or len(events) >= MOST_EVENTS or self._monotonic_s() >= stop_s
            ):
                is_whole = False
                break
        standings = self._standings(subject, sees)
        if is_whole:  # a later record may tell of further deliveries
            standings = [
                each._replace(deliveries=matching.deliveries(each.group, each.place))
                if each.deliveries is None
                else each
                for each in standings
            ]
        return Story(
            subject,
            standings,
            events,
            None if is_whole else pack_cursor(matching.cursor(at)),
            told_ms,
            self._log.start_offset,
            self._log_start_ms(),
        )

    def _log_start_ms(self) -> int | None:
        with suppress(StoreClosedError):  # its segment is dropped just now
            found = self._log.first_time_from(self._log.start_offset)
            return None if found is None else found[1]
        return None

    def _events(self, matching: Matching, record: StateRecord) -> list[Event]:
        entries = unpack_entries(record.body)
        events: list[Event] = []
        for entry in entries:
            for event in matching.events(entry, record):
                if event.what in BECOMES:
                    at, message_id = self._became(entry, record)
                    event = event._replace(message_id=message_id)
                    if event.what is What.DEAD and event.place is not None and message_id:
                        letter = unpack_record(self._log.read_at(at), verify=False)
                        matching.became_letter(event.group, event.place, letter.queue_offset)
                events.append(event)
        return events

    def _became(self, entry: Entry, record: StateRecord) -> tuple[int, str]:
        """Physical offset and id of the message that the append of the record has for the entry."""
        append = append_of(self._log, record.physical_offset)
        pairs = append.pairs if append is not None else ()
        found = ((at, message_id) for each, at, message_id in pairs if each == entry)
        return next(found, (0, ""))

    # --- what it is now --------------------------------------------------------------------

    def _standings(self, subject: Subject, sees: Callable[[str], bool]) -> list[Standing]:
        found: list[Standing] = []
        now_ms = self._now_ms()
        for place in subject.places:
            if len(found) >= MOST_STANDINGS:
                break
            after = ""
            while groups := self._tables.readers(place.topic, MOST_STANDINGS, after):
                after = groups[-1]
                some = (
                    self._standing(group, place, subject, now_ms) for group in groups if sees(group)
                )
                found += [each for each in some if each is not None]
                if len(found) >= MOST_STANDINGS:
                    break
        return found[:MOST_STANDINGS]

    def _standing(self, group: str, place: Place, subject: Subject, now_ms: int) -> Standing | None:
        row = self._tables.group(group)
        if row is None:
            return None
        queue = place.topic, place.queue_id
        settings = self._tables.shared_group(group)
        if settings is not None and settings.lite is not None and not is_light(place.topic):
            return None  # the event is in the light queue's story
        if settings is None:
            (committed,) = self._tables.committed_offsets(group, [queue])
            is_read = committed is not None and committed > place.offset
            return Standing(group, place, Reader.READ if is_read else Reader.UNREAD)
        (window,) = self._tables.windows(group, place.topic, [place.queue_id])
        for lease in window.leases:
            if place.offset in lease.offsets():
                is_held = lease.nonce != NOBODY and not lease.is_over(now_ms)
                reader = Reader.IN_FLIGHT if is_held else Reader.AGAIN
                return Standing(group, place, reader, lease.deliveries, lease.until_ms, lease.nonce)
        if any(offset == place.offset for offset, _ in window.keys):
            return Standing(group, place, Reader.IN_ORDER)
        if place.offset < window.next_offset:
            return Standing(group, place, Reader.DONE, None)  # the row keeps no count
        if settings.from_latest and not window.next_offset:
            begun_at = self._tables.begun_at(group, settings.begins_with(place.topic)) or 0
            if subject.physical_offset < begun_at and self._begins(place) < group_made_at(row):
                return Standing(group, place, Reader.BEFORE_START)
        return Standing(group, place, Reader.NOT_RECEIVED)

    def _begins(self, place: Place) -> int:
        """Physical offset at which its topic begins, or of the light queue's first message."""
        if is_light(place.topic):
            first = self._queues.read_units(place.topic, 0, 0, 1)
            return first[0][1].physical_offset if first else 0
        return self._begins_at(place.topic) or 0


def _subject(
    was: StoredMessage, topic: str, places: Sequence[Place], now: Now, due_ms: int = 0
) -> Subject:
    return Subject(
        *(id_of(was), was.physical_offset, was.store_time_ms, topic, tuple(places), now, due_ms)
    )


def _may_tell(event: Event, sees: Callable[[str], bool]) -> bool:
    return not event.group or sees(event.group)
