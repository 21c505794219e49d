"""The topics and light queues that records of the log deleted, and where.

A replay meets deletions in log order. Code that reads the log for single queues, or in another
order, asks here: a record below the end of its light queue is dead.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from store.errors import CorruptRecordError, MessageNotFoundError
from store.format import unpack_record
from store.state import STATE_TOPIC, TopicEnded, unpack_entries

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from store.consume_queue import ConsumeQueueStore
    from store.log import CommitLog
    from store.state import Entry
    from store.topics import DeadBelow

logger = logging.getLogger(__name__)

_UNITS_A_READ = 256


class DeadOrEnded(NamedTuple):
    """Maps names to the physical offset below which their records are dead; the higher of two
    offsets counts."""

    dead: DeadBelow
    ended: Mapping[str, int]

    def get(self, name: str, default: int, /) -> int:
        return max(self.dead.get(name, default), self.ended.get(name, default))


def state_records(
    log: CommitLog, queues: ConsumeQueueStore, base_offset: int
) -> Iterator[tuple[int, list[Entry]]]:
    """Yield physical offset and entries of each dispatched state record of the log from
    `base_offset` on, in log order. Damaged records are skipped; the reader of the whole log reports
    them.

    Raises DamagedQueueError, CorruptStateError.
    """
    at, end = queues.bounds(STATE_TOPIC, 0, log.start_offset)
    while at < end:
        units = queues.read_units(STATE_TOPIC, 0, at, _UNITS_A_READ)
        for _, unit in units:
            offset = unit.physical_offset
            if offset < base_offset:
                continue
            try:
                record = log.read(offset, unit.record_size)
            except MessageNotFoundError:
                continue  # its segment was dropped just now
            except CorruptRecordError as error:
                logger.error("left out: what the state record at %d says: %s", offset, error)
                continue
            yield offset, unpack_entries(unpack_record(record, verify=False).body)
        at = units[-1][0] + 1


def endings(log: CommitLog, queues: ConsumeQueueStore, base_offset: int) -> dict[str, int]:
    """Map each deleted name to the physical offset of the last record that deletes it.

    Memory: one entry for each; about 150 MB for a million deletions in the log.
    """
    return {
        entry.topic: at
        for at, entries in state_records(log, queues, base_offset)
        for entry in entries
        if isinstance(entry, TopicEnded)
    }
