"""Changes to leases by handles: acknowledge, renew, give back, bury."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from store.errors import OffsetOutOfRangeError, UnknownTopicError
from store.groups.dead_letters import dead_letter
from store.groups.deliveries import Outcome
from store.groups.order import has_waiting
from store.state import Ended, Finished, Leased

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from store.groups.handles import Handles
    from store.groups.turn import Turn
    from store.metadata import SharedGroup
    from store.reads import ReadPath
    from store.state import Held, Lease


class Answered(NamedTuple):
    """The result of each handle, and the log offset at which it becomes durable."""

    outcomes: list[Outcome]
    end_offset: int  # see MessageStore.is_durable


class Part(NamedTuple):
    """The messages of one lease that are in flight and named by a call's handles."""

    turn: Turn
    settings: SharedGroup
    group: str
    topic: str
    queue_id: int
    lease: Lease  # contains only these messages
    was_full: bool  # the group had its maximum of messages of the queue in flight

    def add(self, lease: Lease, how: Held) -> None:
        self.turn.add(Leased(self.group, self.topic, self.queue_id, lease, how))


def change_leases(
    group: str, named: Sequence[Handles], count: int, change: Callable[[Part], None], turn: Turn
) -> list[Outcome]:
    """Apply `change` to the in-flight messages of these handles, lease by lease. Returns an outcome
    for each of the `count` handles."""
    outcomes = [Outcome.NOT_IN_FLIGHT] * count
    by_queue: dict[tuple[str, int, int], dict[int, Handles]] = defaultdict(dict)
    for handles in named:
        topic, begins, queue_id, nonce = handles.head
        by_queue[topic, begins, queue_id][nonce] = handles
    settings = turn.shared(group)
    for (topic, begins, queue_id), by_nonce in by_queue.items():
        if not _is_there(turn, topic, begins):
            for handles in by_nonce.values():
                for at in handles.places:
                    outcomes[at] = Outcome.QUEUE_ENDED
            continue
        (window,) = turn.windows(group, topic, [queue_id])
        was_full = window.in_flight >= settings.most_in_flight or (
            settings.in_order and has_waiting(window)
        )
        for lease in window.leases:
            mask = 0
            if (found := by_nonce.get(lease.nonce)) is None:
                continue
            for at, offset in zip(found.places, found.queue_offsets, strict=True):
                bit = lease.part(offset, 1)
                if bit & ~mask:
                    mask |= bit
                    outcomes[at] = Outcome.DONE
            if mask:
                part = lease._replace(mask=mask)
                change(Part(turn, settings, group, topic, queue_id, part, was_full))
    return outcomes


def acknowledge_lease(part: Part) -> None:
    """A change for `change_leases` that marks the messages as done."""
    _, _, group, topic, queue_id, lease, was_full = part
    part.turn.add(Finished(group, topic, queue_id, lease.first, lease.mask, Ended.ACKNOWLEDGED))
    if was_full:
        part.turn.free(group, topic)


def bury_lease(reads: ReadPath, part: Part) -> None:
    """A change for `change_leases` that makes the only message a dead letter, or finishes it as
    gone if the topic no longer keeps it. Raises CorruptRecordError, DamagedQueueError."""
    turn, _, group, topic, queue_id, lease, was_full = part
    (offset,) = lease.offsets()
    try:
        pulled = reads.pull(topic, queue_id, offset, max_messages=1, max_bytes=1)
        record = dict(zip(pulled.queue_offsets, pulled.records, strict=True)).get(offset)
    except OffsetOutOfRangeError:
        record = None
    if record is None:
        turn.add(Finished(group, topic, queue_id, offset, 1, Ended.GONE))
        turn.gone += 1
    else:
        bury_record(turn, group, topic, queue_id, offset, record, lease)
    if was_full:
        turn.free(group, topic)


def bury_record(
    turn: Turn, group: str, topic: str, queue_id: int, offset: int, record: bytes, lease: Lease
) -> None:
    """Finish the message at `offset` and put its dead letter, in one append. `record`: of the
    message."""
    ended = Finished(group, topic, queue_id, offset, 1, Ended.DEAD)
    turn.append(ended, dead_letter(group, record, topic, queue_id, offset, lease))


def _is_there(turn: Turn, topic: str, begins: int) -> bool:
    """Whether the topic was not deleted and created again since the handle was made."""
    try:
        return turn.place(topic).begins == begins
    except UnknownTopicError:
        return False
