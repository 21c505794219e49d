"""Topics, groups and offsets from the rows of state: the only reader of these rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.state.rows import (
    END,
    PLACES,
    TIMERS_KEY,
    bits_key,
    dead_key,
    ended_key,
    every_row,
    group_key,
    latest_key,
    lite_key,
    moved_key,
    offset_key,
    offsets_range,
    reader_key,
    readers_range,
    split_kept_key,
    split_offset_key,
    timer_key,
    topic_key,
    unpack_bits,
    unpack_group,
    unpack_latest,
    unpack_offset,
    unpack_timer,
    unpack_topic,
    window_key,
    windows_range,
)
from store.state.windows import Window, unpack_window

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from store.metadata import LatestHead, SharedGroup, TopicConfig
    from store.state.rows import Rows, TimerRow


class Tables:
    """Reads topics, groups, offsets and windows from the rows. Thread: that of the rows."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    # --- topics ----------------------------------------------------------------------------

    def topic(self, name: str) -> TopicConfig | None:
        row = self._rows.get(topic_key(name))
        return None if row is None else unpack_topic(name, row)

    def topics(self, names: Sequence[str]) -> list[TopicConfig | None]:
        rows = self._rows.multi_get([b"t" + name.encode() for name in names])
        if not any(rows):  # the usual case for a batch of new topics
            return [None] * len(rows)
        return [
            None if row is None else unpack_topic(name, row)
            for name, row in zip(names, rows, strict=True)
        ]

    def list_topics(self, prefix: str, after: str | None, limit: int) -> list[TopicConfig]:
        """Up to `limit` topics in name order (by UTF-8 bytes), only names above `after`."""
        start = topic_key(prefix)
        end = start + END
        if after is not None:
            start = max(start, topic_key(after) + b"\x00")
        rows = self._rows.scan(start, end, limit)
        return [unpack_topic(key[1:].decode(), value) for key, value in rows]

    def every_topic(self, prefix: str = "") -> Iterator[TopicConfig]:
        """All topics with that prefix, in name order."""
        start = topic_key(prefix)
        for key, value in every_row(self._rows, start, start + END):
            yield unpack_topic(key[1:].decode(), value)

    def counted_queues(self) -> Iterator[tuple[str, int]]:
        """Topic or light queue, and queue id, of queues with a `k` row."""
        return (split_kept_key(key) for key, _ in every_row(self._rows, b"k", b"l"))

    def dead_below(self) -> dict[str, int]:
        """Topics and light queues whose deletion is not in the log, and the physical offset below
        which their records are dead."""
        rows = every_row(self._rows, b"d", b"e")
        return {key[3:].decode(): unpack_offset(value) for key, value in rows}

    def dead_offset(self, name: str) -> int:
        """Like `dead_below`, for one name; 0 if none of its records is dead."""
        row = self._rows.get(dead_key(name))
        return 0 if row is None else unpack_offset(row)

    def has_dead(self) -> bool:
        """Whether `dead_below` is not empty."""
        return bool(self._rows.scan(b"d", b"e", 1))

    def lite_expiry_ms(self, topic: str) -> int | None:
        """Idle time in ms after which a lite topic of this parent expires, 0 for never; None if the
        topic is not a parent."""
        row = self._rows.get(lite_key(topic))
        return None if row is None else unpack_offset(row)

    def list_lite_parents(self, after: str, limit: int, prefix: str = "") -> list[tuple[str, int]]:
        """Up to `limit` parents above `after` with that prefix, in name order, with their expiry in
        ms."""
        first = lite_key(prefix)
        start = max(first, lite_key(after) + b"\x00")
        rows = self._rows.scan(start, first + END if prefix else b"t", limit)
        return [(key[1:].decode(), unpack_offset(value)) for key, value in rows]

    # --- groups ----------------------------------------------------------------------------

    def group(self, name: str) -> bytes | None:
        """The group's row; None if the group does not exist."""
        return self._rows.get(group_key(name))

    def shared_group(self, name: str) -> SharedGroup | None:
        """Settings of a shared group; None if it does not exist, or is a reader group."""
        settings = self.group(name)
        return None if settings is None else unpack_group(settings)

    def list_groups(self, after: str | None, limit: int) -> list[str]:
        start = b"g" if after is None else group_key(after) + b"\x00"
        return [key[1:].decode() for key, _ in self._rows.scan(start, b"h", limit)]

    def every_group(self) -> Iterator[str]:
        """All groups, in name order."""
        return (key[1:].decode() for key, _ in every_row(self._rows, b"g", b"h"))

    def committed_offsets(self, group: str, queues: Sequence[tuple[str, int]]) -> list[int | None]:
        rows = self._rows.multi_get([offset_key(group, *queue) for queue in queues])
        return [None if row is None else unpack_offset(row) for row in rows]

    def list_committed(
        self, group: str, after: tuple[str, int] | None, limit: int
    ) -> list[tuple[str, int, int]]:
        """Up to `limit` committed offsets: (topic, queue id, next offset), above `after`."""
        start, end = offsets_range(group)
        if after is not None:
            start = offset_key(group, *after) + b"\x00"
        return [
            (*split_offset_key(key)[1:], unpack_offset(value))
            for key, value in self._rows.scan(start, end, limit)
        ]

    def every_committed(self, group: str) -> Iterator[tuple[str, int, int]]:
        """All committed offsets of the group: (topic, queue id, next offset)."""
        for key, value in every_row(self._rows, *offsets_range(group)):
            yield *split_offset_key(key)[1:], unpack_offset(value)

    def windows(self, group: str, topic: str, queue_ids: Sequence[int]) -> list[Window]:
        """The windows of a shared group on these queues."""
        rows = self._rows.multi_get([window_key(group, topic, each) for each in queue_ids])
        return [unpack_window(row) for row in rows]

    def windows_of(self, group: str, queues: Sequence[tuple[str, int]]) -> list[Window]:
        """Like `windows`, for queues of several topics or light queues."""
        rows = self._rows.multi_get([window_key(group, *queue) for queue in queues])
        return [unpack_window(row) for row in rows]

    def list_windows(
        self, group: str, after: tuple[str, int] | None, limit: int
    ) -> list[tuple[str, int, Window]]:
        """Up to `limit` windows: (topic, queue id, window), above `after`."""
        start, end = windows_range(group)
        if after is not None:
            start = window_key(group, *after) + b"\x00"
        return [
            (*split_offset_key(key)[1:], unpack_window(value))
            for key, value in self._rows.scan(start, end, limit)
        ]

    def every_window(self, group: str) -> Iterator[tuple[str, int, Window]]:
        """All windows of the group: (topic, queue id, window)."""
        for key, value in every_row(self._rows, *windows_range(group)):
            yield *split_offset_key(key)[1:], unpack_window(value)

    def begun_at(self, group: str, topic: str) -> int | None:
        """Physical offset of the record of a from-latest group's first receive from the topic; None
        if it has not received from it."""
        row = self._rows.get(reader_key(topic, group))
        return unpack_offset(row) if row else None

    def reads(self, group: str, topic: str) -> bool:
        """Whether the group has an offset or a window on the topic, or has begun there."""
        return self._rows.get(reader_key(topic, group)) is not None

    def readers(self, topic: str, limit: int | None = None, after: str = "") -> list[str]:
        """Up to `limit` groups with an offset or a window on the topic, in name order, above
        `after`."""
        first, end = readers_range(topic)
        start = first if not after else first + after.encode() + b"\x00"
        return [key[len(first) :].decode() for key, _ in self._rows.scan(start, end, limit)]

    # --- dead letters ----------------------------------------------------------------------

    def live_places(self, topic: str, first: int, end: int) -> Iterator[int]:
        """Places first <= place < end of live dead letters, ascending."""
        while first < end:
            number = first // PLACES
            behind = min(end, (number + 1) * PLACES)
            ended = unpack_bits(self._rows.get(ended_key(topic, number))) >> first % PLACES
            live = ~ended & (1 << behind - first) - 1
            while live:
                low = live & -live
                yield first + low.bit_length() - 1
                live ^= low
            first = behind

    def count_ended(self, topic: str, first: int, end: int) -> int:
        """Number of dead letters that ended at places first <= place < end."""
        start, stop = ended_key(topic, first // PLACES), ended_key(topic, -(-end // PLACES))
        count = 0
        for key, value in every_row(self._rows, start, stop):
            at = int.from_bytes(key[-8:], "big") * PLACES
            bits = unpack_bits(value)
            if at < first:
                bits = bits >> first - at << first - at
            if end < at + PLACES:
                bits &= (1 << end - at) - 1
            count += bits.bit_count()
        return count

    def moved_letter(self, topic: str, letter: int) -> int | None:
        """The place of a moved letter; None if it was not moved, or has ended."""
        row = self._rows.get(moved_key(topic, letter))
        return None if row is None else unpack_offset(row)

    def moved_letters(self, topic: str, after: int, limit: int) -> list[tuple[int, int]]:
        """Up to `limit` moved letters above `after`, ascending, each with its place."""
        start, end = moved_key(topic, after + 1), moved_key(topic, (1 << 63) - 1)
        rows = self._rows.scan(start, end, limit)
        return [(int.from_bytes(key[-8:], "big"), unpack_offset(value)) for key, value in rows]

    # --- what waits for its time -----------------------------------------------------------

    def count_timers(self) -> int:
        row = self._rows.get(TIMERS_KEY)
        return 0 if row is None else unpack_offset(row)

    def timers(self, keys: Sequence[bytes]) -> list[TimerRow | None]:
        """The row of each key made by `timer_key`; None for a timer that no longer waits."""
        rows = self._rows.multi_get(keys)
        return [None if row is None else unpack_timer(row) for row in rows]

    def list_timers(self, start: bytes, until_ms: int, limit: int) -> list[tuple[bytes, TimerRow]]:
        """Up to `limit` timers with keys from `start` on that are due before `until_ms`, ascending:
        (key, row)."""
        rows = self._rows.scan(start, timer_key(until_ms, 0), limit)
        return [(key, unpack_timer(value)) for key, value in rows]

    # --- what is hidden --------------------------------------------------------------------

    def latest(self, topic: str, queue_id: int) -> LatestHead | None:
        key = latest_key(topic, queue_id)
        row = self._rows.get(key)
        return None if row is None else unpack_latest(key, row)

    def latest_heads(self) -> Iterator[LatestHead]:
        """The `l` rows of all queues."""
        return (unpack_latest(key, value) for key, value in every_row(self._rows, b"l", b"m"))

    def hidden_bits(self, topic: str, queue_id: int, number: int) -> bytes | None:
        return self._rows.get(bits_key(topic, queue_id, number))
