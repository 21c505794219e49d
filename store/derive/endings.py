"""Which topics and light queues ended, by the records that are in the log.

A replay meets their ends in the log's order. What goes over the log for some queues, or in another
order, asks here: a record below the end of its light queue is dead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from store.format import unpack_record
from store.state import STATE_TOPIC, TopicEnded, unpack_entries

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from store.consume_queue import ConsumeQueueStore
    from store.log import CommitLog
    from store.state import Entry
    from store.topics import DeadBelow

_UNITS_A_READ = 256


class DeadOrEnded(NamedTuple):
    """Names -> physical offset below which their records are dead: of two, the higher one."""

    dead: DeadBelow
    ended: Mapping[str, int]

    def get(self, name: str, default: int, /) -> int:
        return max(self.dead.get(name, default), self.ended.get(name, default))


def state_records(
    log: CommitLog, queues: ConsumeQueueStore, base_offset: int
) -> Iterator[tuple[int, list[Entry]]]:
    """Physical offset and entries of each dispatched state record of the log, in its order, from
    `base_offset` on.

    Raises DamagedQueueError, CorruptRecordError.
    """
    at, end = queues.bounds(STATE_TOPIC, 0, log.start_offset)
    while at < end:
        units = queues.read_units(STATE_TOPIC, 0, at, _UNITS_A_READ)
        records = log.read_run([(unit.physical_offset, unit.record_size) for _, unit in units])
        for (_, unit), record in zip(units, records, strict=False):
            if unit.physical_offset >= base_offset:
                entries = unpack_entries(unpack_record(record, verify=False).body)
                yield unit.physical_offset, entries
        at = units[len(records) - 1][0] + 1


def endings(log: CommitLog, queues: ConsumeQueueStore, base_offset: int) -> dict[str, int]:
    """Names that ended -> physical offset of the last record that says so.

    Memory: an entry for each; of a million deletions in the log 150 MB.
    """
    return {
        entry.topic: at
        for at, entries in state_records(log, queues, base_offset)
        for entry in entries
        if isinstance(entry, TopicEnded)
    }
