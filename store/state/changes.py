"""Applies entries to rows.

The appender, dispatch and replay all use these functions. So the result depends only on the
entries, the offset of their record, and the rows before.
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING

from store.metadata import TopicConfig
from store.state.entries import (
    NOWHERE,
    Begun,
    Committed,
    Finished,
    GroupEnded,
    GroupMade,
    LatestLooked,
    Leased,
    LetterEnded,
    LiteTopicsOf,
    Passed,
    Reset,
    Seen,
    TimerEnded,
    TimersEnded,
    TimerSet,
    TopicEnded,
    TopicKeeps,
    TopicsMade,
    TopicTakes,
)
from store.state.half_entries import (
    HalfBegun,
    HalfChecked,
    HalfEnded,
    HalfMoved,
    HalvesForgotten,
)
from store.state.halves import HalfTables, apply_half_entry
from store.state.rows import (
    DEAD_LETTERS,
    PLACES,
    TIMERS_KEY,
    TimerRow,
    bits_key,
    dead_key,
    ended_key,
    group_key,
    hidden_ranges,
    latest_key,
    letters_ranges,
    lite_key,
    made_group,
    moved_key,
    offset_key,
    offsets_range,
    pack_bits,
    pack_latest,
    pack_offset,
    pack_timer,
    pack_topic,
    reader_key,
    reader_keys_of,
    readers_range,
    timer_key,
    topic_key,
    unpack_bits,
    unpack_offset,
    unpack_timer,
    window_key,
    windows_range,
)
from store.state.tables import Tables
from store.state.windows import Window, pack_window, unpack_window

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from store.state.entries import Entry
    from store.state.rows import Pair, Rows


_FEW_ROWS = 256


class Changes:
    """Pending changes of rows; reads return the rows with the changes applied.

    Apply `ranges` first, then `written`. A range with few rows is deleted row by row, because each
    range deletion slows reads while it is in a memtable, and there may be very many.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        #: Key to new value; None: deleted.
        self.written: dict[bytes, bytes | None] = {}
        #: Keys in start <= key < end are deleted, except those in `written`.
        self.ranges: list[tuple[bytes, bytes]] = []
        #: Deleted topics and light queues: rows derived from their messages are deleted as well.
        self.ended: list[str] = []

    def put(self, key: bytes, value: bytes) -> None:
        self.written[key] = value

    def delete(self, key: bytes) -> None:
        self.written[key] = None

    def delete_range(self, start: bytes, end: bytes) -> None:
        rows = self.scan(start, end, _FEW_ROWS + 1)
        if len(rows) <= _FEW_ROWS:
            for key, _ in rows:
                self.written[key] = None
            return
        for key in self.written:
            if start <= key < end:
                self.written[key] = None
        self.ranges.append((start, end))

    # --- as rows ---------------------------------------------------------------------------

    def get(self, key: bytes) -> bytes | None:
        if key in self.written:
            return self.written[key]
        return None if self._is_deleted(key) else self._rows.get(key)

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        written = self.written
        if self.ranges:
            asked = [key for key in keys if key not in written and not self._is_deleted(key)]
        elif written.keys().isdisjoint(keys):
            return self._rows.multi_get(keys)
        else:
            asked = [key for key in keys if key not in written]
        found = dict(zip(asked, self._rows.multi_get(asked), strict=True)) if asked else {}
        return [written[key] if key in written else found.get(key) for key in keys]

    def scan(self, start: bytes, end: bytes, limit: int | None = None) -> Sequence[Pair]:
        if not self.written and not self.ranges:
            return self._rows.scan(start, end, limit)
        # Up to len(self.written) of the rows read may be deleted, and do not count.
        more = None if limit is None else limit + len(self.written)
        while True:
            below = self._rows.scan(start, end, more)
            found = [
                row for row in below if row[0] not in self.written and not self._is_deleted(row[0])
            ]
            is_all = more is None or len(below) < more
            # If the limit ended the read, more rows may follow behind the last one.
            seen = end if is_all else below[-1][0] + b"\x00"
            for key, value in self.written.items():
                if start <= key < seen and value is not None:
                    insort(found, (key, value))
            if is_all or (limit is not None and len(found) >= limit):
                return found[:limit]
            assert more is not None
            more *= 4

    def _is_deleted(self, key: bytes) -> bool:
        return any(start <= key < end for start, end in self.ranges)


def changes_of(entries: Iterable[Entry], physical_offset: int, rows: Rows) -> Changes:
    """The changes to `rows` by the entries of the record at `physical_offset`."""
    changes = Changes(rows)
    for entry in entries:
        apply_entry(entry, physical_offset, changes)
    return changes


def apply_entry(entry: Entry, at: int, changes: Changes) -> None:
    """Apply the next entry of the record at physical offset `at`."""
    match entry:
        case TopicsMade(topics, queue_count, created_ms, retention):
            row = pack_topic(TopicConfig("", queue_count, created_ms, at, retention))
            changes.written.update(dict.fromkeys(map(topic_key, topics), row))
        case TopicKeeps(topic, retention):
            found = _found(topic, changes)
            changes.put(topic_key(topic), pack_topic(found._replace(retention=retention)))
        case TopicTakes(topic, message_type):
            found = _found(topic, changes)
            changes.put(topic_key(topic), pack_topic(found._replace(message_type=message_type)))
        case TopicEnded(topic):
            _end_topic(topic, changes)
        case GroupMade(group, settings):
            key = group_key(group)
            changes.put(key, made_group(settings, at, changes.get(key)))
        case GroupEnded(group):
            _end_group(group, changes)
        case Committed(group, topic, queue_id, offset):
            changes.put(offset_key(group, topic, queue_id), pack_offset(offset))
            changes.put(reader_key(topic, group), b"")
        case LatestLooked(topic, queue_id, looked, hidden, first, bits):
            changes.delete_range(bits_key(topic, queue_id, 0), bits_key(topic, queue_id, first))
            for number, row in bits.items():
                changes.put(bits_key(topic, queue_id, number), row)
            changes.put(latest_key(topic, queue_id), pack_latest(looked, hidden))
        case Leased(group, topic, queue_id, lease, _):
            _change_window(changes, group, topic, queue_id, lambda window: window.leased(lease))
        case Finished(group, topic, queue_id, first, mask, _):
            _change_window(
                changes, group, topic, queue_id, lambda window: window.without(first, mask)
            )
        case Passed(group, topic, queue_id, offset):
            _change_window(changes, group, topic, queue_id, lambda window: window.passed(offset))
        case LetterEnded():
            _end_letter(entry, changes)
        case Reset(group, topic, queue_id, offset):
            _change_window(changes, group, topic, queue_id, lambda _: Window(offset, ()))
        case Seen(group, topic, queue_id, first, mask, keys):
            _change_window(
                changes, group, topic, queue_id, lambda window: window.seen(first, mask, keys)
            )
        case Begun(group, topic):
            changes.put(reader_key(topic, group), pack_offset(at))
        case TimerSet(topic, due_ms, place, nonce):
            begins = _found(topic, changes).created_offset
            _keep_timer(timer_key(due_ms, place), TimerRow(place, begins, nonce), changes)
        case TimerEnded(due_ms, timer, moved_to, _):
            key = timer_key(due_ms, timer)
            if moved_to == NOWHERE:
                changes.delete(key)
                _count_timers(changes, -1)
            else:
                before = changes.get(key)
                assert before is not None, f"timer {timer} was moved, and does not wait"
                changes.put(key, pack_timer(unpack_timer(before)._replace(place=moved_to)))
        case TimersEnded(timers):
            changes.written.update(dict.fromkeys(timers))
            _count_timers(changes, -len(timers))
        case HalfBegun() | HalfEnded() | HalfChecked() | HalfMoved() | HalvesForgotten():
            apply_half_entry(entry, at, changes)
        case LiteTopicsOf(topic, expiry_ms):
            changes.put(lite_key(topic), pack_offset(expiry_ms))


def apply_entry_of_rest(entry: Entry, at: int, changes: Changes) -> bool:
    """Like `apply_entry`, for a log whose first records and their state are lost.

    Ignores changes of unknown topics and open halves. A delayed message of an unknown topic is
    kept, because its topic was created in the lost part. Returns False if something that had not
    ended was lost.
    """
    tables = Tables(changes)
    match entry:
        case LiteTopicsOf(topic) | TopicKeeps(topic) | TopicTakes(topic):
            if tables.topic(topic) is None:
                return False
        case TimerSet(topic, due_ms, place, nonce):
            if tables.topic(topic) is None:
                _keep_timer(timer_key(due_ms, place), TimerRow(place, 0, nonce), changes)
                return True
        case TimerEnded(due_ms, timer, moved_to, _):
            key = timer_key(due_ms, timer)
            if changes.get(key) is None:
                if moved_to != NOWHERE:  # its nonce is lost, so it cannot be recalled
                    _keep_timer(key, TimerRow(moved_to, 0, max(1, at)), changes)
                return True
        case HalfEnded(half) | HalfChecked(half) | HalfMoved(half):
            if HalfTables(changes).open(half) is None:
                return isinstance(entry, HalfEnded)
        case _:
            pass
    apply_entry(entry, at, changes)
    return True


def _keep_timer(key: bytes, row: TimerRow, changes: Changes) -> None:
    changes.put(key, pack_timer(row))
    _count_timers(changes, 1)


def _count_timers(changes: Changes, more: int) -> None:
    before = changes.get(TIMERS_KEY)
    changes.put(TIMERS_KEY, pack_offset((0 if before is None else unpack_offset(before)) + more))


def _found(topic: str, changes: Changes) -> TopicConfig:
    found = Tables(changes).topic(topic)
    assert found is not None, f"an entry of {topic!r}, which was not made"
    return found


def _change_window(
    changes: Changes,
    group: str,
    topic: str,
    queue_id: int,
    change: Callable[[Window], Window],
) -> None:
    key = window_key(group, topic, queue_id)
    row = changes.get(key)
    if row is None and changes.get(reader := reader_key(topic, group)) is None:
        changes.put(reader, b"")
    changes.put(key, pack_window(change(unpack_window(row))))


def _end_letter(entry: LetterEnded, changes: Changes) -> None:
    topic, letter, place, moved_to, first_offset, _ = entry
    number, bit = divmod(place, PLACES)
    key = ended_key(topic, number)
    changes.put(key, pack_bits(unpack_bits(changes.get(key)) | 1 << bit))
    if first_offset >= PLACES:
        changes.delete_range(ended_key(topic, 0), ended_key(topic, first_offset // PLACES))
    if moved_to >= 0:
        changes.put(moved_key(topic, letter), pack_offset(moved_to))
    elif place != letter:
        changes.delete(moved_key(topic, letter))


def _end_topic(topic: str, changes: Changes) -> None:
    readers = Tables(changes).readers(topic)
    for group in readers:
        changes.delete_range(*offsets_range(group, topic))
        changes.delete_range(*windows_range(group, topic))
    if readers:
        changes.delete_range(*readers_range(topic))
    # A light queue has no row of its own. If it has no `l` row, nothing is hidden in it: a row is
    # cheaper to look up than a range, and light queues are deleted by the million.
    row = changes.get(topic_key(topic))
    if row is not None or changes.get(latest_key(topic, 0)) is not None:
        for start, end in hidden_ranges(topic):
            changes.delete_range(start, end)
    if topic.startswith(DEAD_LETTERS):
        for start, end in letters_ranges(topic):
            changes.delete_range(start, end)
    changes.delete(topic_key(topic))
    if changes.get(lite_key(topic)) is not None:
        changes.delete(lite_key(topic))
    # The topic's records lie before this one; rows derived from them are deleted (`ended`).
    changes.delete(dead_key(topic))
    changes.ended.append(topic)


def _end_group(group: str, changes: Changes) -> None:
    # Only keys are looked at, under the append lock: a group may have windows on 100,000 queues.
    ranges = offsets_range(group), windows_range(group)
    readers = [key for each in ranges for key in reader_keys_of(changes.scan(*each), group)]
    for each in ranges:  # before the readers: it reads a row more for each that is written
        changes.delete_range(*each)
    changes.written.update(dict.fromkeys(readers))
    changes.delete(group_key(group))
