"""Checks in-flight messages and dead letters of shared groups with code that is independent of
dispatch.

It uses none of the code that dispatch uses to compute rows (`store/state/changes.py`,
`windows.py`): rows are decoded by the layouts documented in `store/state/rows.py` and `windows.py`,
and entries are followed message by message. So it also finds a fault that dispatch and replay
share. Memory: messages in flight, and dead letters.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from store.state import (
    Begun,
    Committed,
    Finished,
    GroupEnded,
    GroupMade,
    Leased,
    LetterEnded,
    Passed,
    Reset,
    Seen,
    TopicEnded,
    TopicsMade,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kvcq.engine import Pair
    from store.state import Entry

#: Takes a row's key, the expected value, and the value found.
Tell = Callable[[bytes, str, str], None]

K = TypeVar("K", bound=Any)  # names that can be sorted
V = TypeVar("V")

_HEAD = struct.Struct(">Bq")
_LEASE = struct.Struct(">qQHqqqq")
_ORDERED_HEAD = struct.Struct(">BqI")
_KEY = struct.Struct(">qq")
_TABLES = (b"g", b"q", b"t", b"w", b"x", b"y")
_PLACES = 8192
_LIGHT = "%LMQ%"
_SETTINGS = struct.Struct(">qBIqIBq")
_LITE = struct.Struct(">BIh")


class _Held(NamedTuple):
    """A message in flight."""

    deliveries: int
    nonce: int
    until_ms: int
    lease_ms: int
    attempt: int

    def __str__(self) -> str:
        who = "waits" if self.nonce == 0 else f"is with the receiver of nonce {self.nonce}"
        return f"{who} until {self.until_ms}, delivered {self.deliveries} times"


class _Queue:
    """The state of one group on one queue."""

    def __init__(self) -> None:
        self.next_offset = 0
        self.held: dict[int, _Held] = {}
        # For a group in order: message groups of messages that are not done.
        self.keys: dict[int, int] = {}

    def hand_out(self, first: int, mask: int, held: _Held) -> None:
        for offset in _offsets(first, mask):
            self.held[offset] = held
            self.next_offset = max(self.next_offset, offset + 1)

    def finish(self, first: int, mask: int) -> None:
        for offset in _offsets(first, mask):
            self.held.pop(offset, None)
            self.keys.pop(offset, None)

    def see(self, first: int, mask: int, keys: Iterable[int]) -> None:
        for offset, key in zip(_offsets(first, mask), keys, strict=True):
            self.keys[offset] = key
            self.next_offset = max(self.next_offset, offset + 1)


class _BadRowError(Exception):
    """An invalid row; the text is the reason."""


class SharedGroups:
    """Groups, windows and dead letters, from rows or from records."""

    def __init__(self) -> None:
        self.groups: dict[str, bytes] = {}  # settings; empty: of a reader group
        self.topics: set[str] = set()
        self.readers: dict[tuple[str, str], int | None] = {}  # topic and group: where it has begun
        self.queues: dict[tuple[str, str, int], _Queue] = {}
        self.ended: dict[str, set[int]] = {}  # topic of dead letters -> places
        self.moved: dict[tuple[str, int], int] = {}

    # --- of rows ---------------------------------------------------------------------------

    @classmethod
    def of_rows(cls, rows: Iterable[Pair], tell: Tell) -> SharedGroups:
        """Decode the rows; invalid ones are reported and skipped."""
        found = cls()
        for key, value in rows:
            if key.startswith(_TABLES):
                try:
                    found._take_row(key, value)
                except (_BadRowError, struct.error, ValueError) as error:
                    tell(key, "a row that can be", f"{value.hex()}: {error}")
        return found

    def _take_row(self, key: bytes, value: bytes) -> None:
        table = key[:1]
        if table == b"t":
            self.topics.add(key[1:].decode())
        elif table == b"g":
            _check_settings(value)
            self.groups[key[1:].decode()] = value
        elif table == b"q":
            topic, rest = _name(key, 1)
            begun = None if not value else _i64(value)
            self.readers[topic, key[rest:].decode()] = begun
        elif table == b"w":
            group, rest = _name(key, 1)
            topic, rest = _name(key, rest)
            (queue_id,) = struct.unpack(">i", key[rest:])
            self.queues[group, topic, queue_id] = _window(value)
        else:
            topic, rest = _name(key, 1)
            number = _i64(key[rest:])
            if table == b"y":
                self.moved[topic, number] = _i64(value)
                return
            if not value or value[-1] == 0 or len(value) > _PLACES // 8:
                raise _BadRowError("bits do not end with a byte that has one")
            places = self.ended.setdefault(topic, set())
            for at, byte in enumerate(value):
                places.update(
                    number * _PLACES + 8 * at + bit for bit in range(8) if byte >> bit & 1
                )

    # --- of records ------------------------------------------------------------------------

    def follow(self, entries: Iterable[Entry], at: int) -> None:
        """Process the entries of the record at that physical offset."""
        for entry in entries:
            self._follow(entry, at)

    def _follow(self, entry: Entry, at: int) -> None:
        match entry:
            case TopicsMade(topics):
                self.topics.update(topics)
            case GroupMade(group, settings):
                made_at = self.groups.get(group, b"")[:8] or struct.pack(">q", at)
                self.groups[group] = made_at + settings if settings else b""
            case Committed(group, topic):
                self.readers[topic, group] = None
            case Begun(group, topic):
                self.readers[topic, group] = at
            case Leased(group, topic, queue_id, lease, _):
                first, mask, *held = lease
                self._queue(group, topic, queue_id).hand_out(first, mask, _Held(*held))
            case Finished(group, topic, queue_id, first, mask, _):
                self._queue(group, topic, queue_id).finish(first, mask)
            case Passed(group, topic, queue_id, offset):
                queue = self._queue(group, topic, queue_id)
                queue.next_offset = max(queue.next_offset, offset)
            case Reset(group, topic, queue_id, offset):
                queue = self._queue(group, topic, queue_id)
                queue.held, queue.keys, queue.next_offset = {}, {}, offset
            case Seen(group, topic, queue_id, first, mask, keys):
                self._queue(group, topic, queue_id).see(first, mask, keys)
            case LetterEnded(topic, letter, place, moved_to, first, _):
                self._letter_ended(topic, letter, place, moved_to, first)
            case TopicEnded(topic):
                self._forget(lambda of_group, of_topic: of_topic == topic)
                self.topics.discard(topic)
                self.ended.pop(topic, None)
                self.moved = {key: at for key, at in self.moved.items() if key[0] != topic}
            case GroupEnded(group):
                # A row that only says that the group has begun stays; it does not count for a later
                # group.
                begun = {
                    key: at
                    for key, at in self.readers.items()
                    if key[1] == group and at is not None and not self._has_window(*key)
                }
                self._forget(lambda of_group, of_topic: of_group == group)
                self.readers |= begun
                self.groups.pop(group, None)
            case _:
                pass  # entries of other kinds

    def _queue(self, group: str, topic: str, queue_id: int) -> _Queue:
        self.readers.setdefault((topic, group), None)
        return self.queues.setdefault((group, topic, queue_id), _Queue())

    def _has_window(self, topic: str, group: str) -> bool:
        return any(key[:2] == (group, topic) for key in self.queues)

    def _letter_ended(self, topic: str, letter: int, place: int, moved_to: int, first: int) -> None:
        places = self.ended.setdefault(topic, set())
        places.add(place)
        kept_from = first // _PLACES * _PLACES
        if kept_from:
            places.difference_update([each for each in places if each < kept_from])
        if moved_to >= 0:
            self.moved[topic, letter] = moved_to
        elif place != letter:
            self.moved.pop((topic, letter), None)

    def _forget(self, is_gone: Callable[[str, str], bool]) -> None:
        self.queues = {key: one for key, one in self.queues.items() if not is_gone(*key[:2])}
        self.readers = {
            (topic, group): at
            for (topic, group), at in self.readers.items()
            if not is_gone(group, topic)
        }

    # --- what must hold --------------------------------------------------------------------

    def check(self, tell: Tell, end_of: Callable[[str, int], int]) -> None:
        """Report states that are impossible whatever the records say. `end_of`: the next offset of
        a queue."""
        for (group, topic, queue_id), queue in self.queues.items():
            key = _window_key(group, topic, queue_id)
            if not self.groups.get(group):
                tell(key, f"group {group!r} is there, and shared", "it is not")
            if not topic.startswith(_LIGHT) and topic not in self.topics:
                tell(key, f"topic {topic!r} is there", "it is not")
            if (topic, group) not in self.readers:
                tell(key, f"a row of group {group!r} as a reader of {topic!r}", "no row")
            end = end_of(topic, queue_id)
            if queue.next_offset > end:
                tell(
                    key, f"a next offset up to {end}, the end of the queue", f"{queue.next_offset}"
                )
        for (topic, letter), place in self.moved.items():
            if place in self.ended.get(topic, ()):
                key = _letter_key(b"y", topic, letter)
                tell(key, "a place of a dead letter that has not ended", f"{place}, which has")
        for topic, places in self.ended.items():
            if max(places, default=0) >= (end := end_of(topic, 0)):
                key = _letter_key(b"x", topic, max(places) // _PLACES)
                tell(key, f"places below {end}, the end of the queue", f"{max(places)}")

    def compare(self, wanted: SharedGroups, tell: Tell) -> None:
        """Report differences from what the records produce."""
        for group, here, there in _differing(self.groups, wanted.groups):
            tell(b"g" + group.encode(), _settings_said(there), _settings_said(here))
        for (topic, group), at, wanted_at in _differing(self.readers, wanted.readers):
            key = b"q" + _sized(topic) + group.encode()
            tell(key, f"a reader that has begun at {wanted_at}", f"{at}")
        for name in sorted(self.queues.keys() | wanted.queues.keys()):
            _compare_queues(
                _window_key(*name), self.queues.get(name), wanted.queues.get(name), tell
            )
        for (topic, letter), place, wanted_place in _differing(self.moved, wanted.moved):
            key = _letter_key(b"y", topic, letter)
            tell(key, f"dead letter {letter} moved to {wanted_place}", f"{place}")
        for topic in sorted(self.ended.keys() | wanted.ended.keys()):
            places, wanted_places = self.ended.get(topic, set()), wanted.ended.get(topic, set())
            for place in sorted(places ^ wanted_places):
                said = [f"dead letter at place {place} lives", "it has ended"]
                if place in wanted_places:
                    said = [f"dead letter at place {place} has ended", "it lives"]
                tell(_letter_key(b"x", topic, place // _PLACES), *said)


def _differing(here: Mapping[K, V], there: Mapping[K, V]) -> Iterator[tuple[K, V | str, V | str]]:
    """Yield each name whose values differ, and both values."""
    for name in sorted(here.keys() | there.keys()):
        mine: V | str = here.get(name, "no row")
        its: V | str = there.get(name, "no row")
        if mine != its:
            yield name, mine, its


def _compare_queues(key: bytes, here: _Queue | None, there: _Queue | None, tell: Tell) -> None:
    if here is None or there is None:
        tell(key, *("no row" if one is None else _said(one) for one in (there, here)))
        return
    if here.next_offset != there.next_offset:
        tell(key, f"next offset {there.next_offset}", f"{here.next_offset}")
    for offset in sorted(here.held.keys() | there.held.keys()):
        mine, its = here.held.get(offset), there.held.get(offset)
        if mine != its:
            said = ["is done" if one is None else str(one) for one in (its, mine)]
            tell(key, *(f"message {offset} {text}" for text in said))
    for offset, found, wanted in _differing(here.keys, there.keys):
        tell(key, f"message {offset} of message group {wanted}", f"{found}")


def _settings_said(row: bytes | str) -> str:
    return row if isinstance(row, str) else f"settings {row.hex() or 'of a reader group'}"


def _said(queue: _Queue) -> str:
    return f"next offset {queue.next_offset}, {len(queue.held)} messages in flight"


def _window(value: bytes) -> _Queue:
    form, next_offset = _HEAD.unpack_from(value)
    begin, end = _HEAD.size, len(value)
    if form == 2:
        _, _, count = _ORDERED_HEAD.unpack_from(value)
        begin = _ORDERED_HEAD.size
        end = begin + count * _LEASE.size
        if end >= len(value) or (len(value) - end) % _KEY.size:
            raise _BadRowError(f"a window with {count} leases and {len(value)} bytes")
    elif form != 1 or (end - begin) % _LEASE.size:
        raise _BadRowError(f"a window of form {form} and {len(value)} bytes")
    queue = _Queue()
    queue.next_offset = next_offset
    last = -1
    for offset, key in _KEY.iter_unpack(value[end:]):
        if not last < offset < next_offset:
            raise _BadRowError(f"message {offset} waits, and the next is {next_offset}")
        queue.keys[offset] = key
        last = offset
    for first, mask, *held in _LEASE.iter_unpack(value[begin:end]):
        least = 1 if held[1] else 0  # if no member has it, its last delivery may not count
        if mask == 0 or held[0] < least or held[1] < 0 or held[3] < 0:
            raise _BadRowError(f"a lease of mask {mask:x} and {held}")
        for offset in _offsets(first, mask):
            if offset in queue.held:
                raise _BadRowError(f"message {offset} is in two leases")
            if not 0 <= offset < next_offset:
                raise _BadRowError(f"message {offset} is in flight, and the next is {next_offset}")
            queue.held[offset] = _Held(*held)
    return queue


def _check_settings(value: bytes) -> None:
    if not value:
        return
    made_at, form, most, invisible_ms, in_flight, flags, keep_ms = _SETTINGS.unpack_from(value)
    rest = value[_SETTINGS.size :]
    if form == 2:  # of lite topics
        how, quota, size = _LITE.unpack_from(rest)
        parent, rest = rest[_LITE.size :][:size], rest[_LITE.size + size :]
        if how > 2 or not 1 <= quota <= 100_000 or not 0 < size == len(parent):
            raise _BadRowError(f"lite topics of {parent!r}, quota {quota}, flags {how}")
    delays = [each for (each,) in struct.iter_unpack(">q", rest)]
    if form not in (1, 2) or made_at < 0 or flags > 7:
        raise _BadRowError(f"settings of form {form}, flags {flags}, made at {made_at}")
    if most > 1000 or not 1 <= invisible_ms <= 43_200_000 or not 1 <= in_flight <= 10_000:
        raise _BadRowError(f"{most} deliveries, {invisible_ms} ms, {in_flight} in flight")
    if keep_ms < 60_000 or any(not 0 <= each <= 2_592_000_000 for each in delays):
        raise _BadRowError(f"dead letters are kept for {keep_ms} ms, delays {delays}")


def _offsets(first: int, mask: int) -> Iterator[int]:
    return (first + bit for bit in range(mask.bit_length()) if mask >> bit & 1)


def _sized(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _window_key(group: str, topic: str, queue_id: int) -> bytes:
    return b"w" + _sized(group) + _sized(topic) + struct.pack(">i", queue_id)


def _letter_key(table: bytes, topic: str, number: int) -> bytes:
    return table + _sized(topic) + struct.pack(">q", number)


def _name(key: bytes, at: int) -> tuple[str, int]:
    """The name at that position, and the position after it."""
    (size,) = struct.unpack_from(">h", key, at)
    if size < 0 or at + 2 + size > len(key):
        raise _BadRowError(f"a name of {size} bytes")
    return key[at + 2 : at + 2 + size].decode(), at + 2 + size


def _i64(value: bytes) -> int:
    return int(struct.unpack(">q", value)[0])
