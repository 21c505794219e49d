"""A message that its receiver gives up is a dead letter at once, however often it was delivered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.errors import OffsetOutOfRangeError
from store.groups.dead_letters import dead_letter
from store.state import Ended, Finished

if TYPE_CHECKING:
    from store.groups.positions import Reads
    from store.groups.turn import Turn
    from store.state import Lease


def bury(turn: Turn, reads: Reads, group: str, topic: str, queue_id: int, lease: Lease) -> None:
    """Of a lease with one message. Raises CorruptRecordError, DamagedQueueError."""
    (offset,) = lease.offsets()
    record = _record(reads, topic, queue_id, offset)
    if record is None:  # the topic does not keep it any longer
        turn.add(Finished(group, topic, queue_id, offset, 1, Ended.GONE))
        return
    ended = Finished(group, topic, queue_id, offset, 1, Ended.DEAD)
    turn.append(ended, dead_letter(group, record, topic, queue_id, offset, lease))


def _record(reads: Reads, topic: str, queue_id: int, offset: int) -> bytes | None:
    try:
        pulled = reads.pull(topic, queue_id, offset, max_messages=1, max_bytes=1)
    except OffsetOutOfRangeError:
        return None
    return dict(zip(pulled.queue_offsets, pulled.records, strict=True)).get(offset)
