"""Turns a message into a dead letter when its deliveries are used up or its receiver gives up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.errors import OffsetOutOfRangeError
from store.groups.dead_letters import dead_letter
from store.state import Ended, Finished

if TYPE_CHECKING:
    from store.groups.positions import Reads
    from store.groups.turn import Turn
    from store.state import Lease


def bury_record(
    turn: Turn, group: str, topic: str, queue_id: int, offset: int, record: bytes, lease: Lease
) -> None:
    """Finish the message at `offset` and put its dead letter, in one append. `record`: of the
    message."""
    ended = Finished(group, topic, queue_id, offset, 1, Ended.DEAD)
    turn.append(ended, dead_letter(group, record, topic, queue_id, offset, lease))


def bury(turn: Turn, reads: Reads, group: str, topic: str, queue_id: int, lease: Lease) -> None:
    """Make the only message of the lease a dead letter, or finish it as gone if the topic no longer
    keeps it. Raises CorruptRecordError, DamagedQueueError."""
    (offset,) = lease.offsets()
    record = _record(reads, topic, queue_id, offset)
    if record is None:
        turn.add(Finished(group, topic, queue_id, offset, 1, Ended.GONE))
        turn.gone += 1
        return
    bury_record(turn, group, topic, queue_id, offset, record, lease)


def _record(reads: Reads, topic: str, queue_id: int, offset: int) -> bytes | None:
    try:
        pulled = reads.pull(topic, queue_id, offset, max_messages=1, max_bytes=1)
    except OffsetOutOfRangeError:
        return None
    return dict(zip(pulled.queue_offsets, pulled.records, strict=True)).get(offset)
