"""Keeps the latest message of each key in a queue: scans it, and hides superseded messages.

The key is the whole text of a message's keys, as in RocketMQ's compacted topics; a message without
keys is never hidden. A message with an empty body deletes its key: it hides the earlier ones, and
itself once it is old enough that readers have seen it.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

from store.derive import CHUNK, MOST_QUEUES
from store.errors import CorruptRecordError, InvalidArgumentError, MessageNotFoundError
from store.format import KEYS, unpack_record
from store.metadata import LatestHead

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from store.consume_queue import ConsumeQueueStore, CqUnit
    from store.derive import Superseded
    from store.log import CommitLog, StoreTimes
    from store.message import StoredMessage
    from store.reads.reader import Reader

#: A message that deletes its key stays visible for this long, ms.
DELETES_KEPT_MS = 86_400_000
#: Keys that are remembered at a time, about 240 bytes each. A queue with more messages is gone
#: through several times, for a part of the keys each.
MOST_KEYS = 500_000
_UNITS_A_READ = 512
_DIGEST_BYTES = 16


class LatestKept(NamedTuple):
    """The result of scanning one queue."""

    messages: int  # that were looked at, including hidden ones
    hidden: int  # of these, hidden now


class _Latest(NamedTuple):
    offset: int
    deletes: bool
    physical_offset: int
    store_time_ms: int  # its stamp


class LatestMessages:
    """Handles one queue at a time. Used by one thread at a time."""

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueueStore,
        reader: Reader,
        superseded: Superseded,
        times: StoreTimes,
    ) -> None:
        self._log = log
        self._queues = queues
        self._reader = reader
        self.superseded = superseded
        self._times = times

    def keep(
        self,
        topic: str,
        queue_id: int,
        durable_end: int,
        progress: Callable[[int, int], None],
    ) -> LatestKept:
        """Hide superseded messages among the records below `durable_end`, a physical offset.

        `progress` is called with messages done and in all, several times a second; if it raises,
        the work stops, and nothing is hidden in this queue. Raises UnknownTopicError,
        UnknownQueueError, and InvalidArgumentError if too many queues are kept this way already.
        """
        if not self.superseded.has_room(topic, queue_id):
            most = f"{MOST_QUEUES:,} queues are kept to their latest messages"
            raise InvalidArgumentError("topic", f"{most}, and no more can be")
        end = self._reader.end_of(topic)
        low, high = self._reader.bounds_in_log(topic, queue_id)
        bits = _Bits()
        parts = -(-(high - low) // MOST_KEYS)
        messages = 0
        for part in range(parts):
            messages = 0
            latest: dict[bytes, _Latest] = {}
            for at, units in self._units(topic, queue_id, low, high, durable_end):
                messages += len(units)
                for offset, message in self._visible(topic, queue_id, units, bits):
                    _supersede(latest, offset, message, part, parts, bits)
                progress(part * (high - low) + at - low, parts * (high - low))
            oldest_ms = self._times.now_ms() - DELETES_KEPT_MS
            for last in latest.values():
                stored_ms = self._times.of(last.physical_offset, last.store_time_ms)
                if last.deletes and stored_ms < oldest_ms:
                    bits.add(last.offset)
        if messages:
            head = LatestHead(topic, queue_id, durable_end, bits.count)
            self.superseded.put(head, bits.rows(), end)
        return LatestKept(messages, bits.count)

    def _units(
        self, topic: str, queue_id: int, low: int, high: int, durable_end: int
    ) -> Iterator[tuple[int, list[tuple[int, CqUnit]]]]:
        """Units below the end in chunks, each with the offset after it."""
        for at in range(low, high, _UNITS_A_READ):
            count = min(_UNITS_A_READ, high - at)
            units = self._queues.read_units(topic, queue_id, at, count)
            whole = [each for each in units if each[1].physical_offset < durable_end]
            yield at + count, whole
            if len(whole) < len(units):
                return

    def _visible(
        self, topic: str, queue_id: int, units: list[tuple[int, CqUnit]], bits: _Bits
    ) -> Iterator[tuple[int, StoredMessage]]:
        """Messages that no earlier scan has hidden; hidden ones are set in `bits`."""
        hidden = self.superseded.get(topic, queue_id)
        if hidden is not None:
            visible = hidden.visible(units)
            shown = {offset for offset, _ in visible}
            for offset, _ in units:
                if offset not in shown:
                    bits.add(offset)
            units = visible
        at = 0
        while at < len(units):
            places = [(unit.physical_offset, unit.record_size) for _, unit in units[at:]]
            try:
                records = self._log.read_run(places)
            except (MessageNotFoundError, CorruptRecordError):
                at += 1  # dropped since, or damaged: it is not hidden
                continue
            for (offset, _), record in zip(units[at:], records, strict=False):
                yield offset, unpack_record(record, verify=False)
            at += len(records)


class _Bits:
    """One bit for each offset of a queue."""

    def __init__(self) -> None:
        self._rows: dict[int, bytearray] = {}
        self.count = 0

    def add(self, offset: int) -> None:
        row = self._rows.setdefault(offset // CHUNK, bytearray(CHUNK // 8))
        at = offset % CHUNK
        if not row[at >> 3] & (1 << (at & 7)):
            row[at >> 3] |= 1 << (at & 7)
            self.count += 1

    def rows(self) -> dict[int, bytes]:
        return {number: bytes(row) for number, row in self._rows.items()}


def _supersede(
    latest: dict[bytes, _Latest],
    offset: int,
    message: StoredMessage,
    part: int,
    parts: int,
    bits: _Bits,
) -> None:
    """Make the message the latest of its key and hide the previous one. Ignores keys of other
    parts."""
    key = message.properties.get(KEYS)
    if not key:
        return
    digest = hashlib.blake2b(key.encode(), digest_size=_DIGEST_BYTES).digest()
    if parts > 1 and int.from_bytes(digest[:4], "big") % parts != part:
        return
    before = latest.get(digest)
    if before is not None:
        bits.add(before.offset)
    latest[digest] = _Latest(
        offset, not message.body, message.physical_offset, message.store_time_ms
    )
