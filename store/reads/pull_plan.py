"""The plan of a pull, from the units of its queue, before any record is read.

It includes every decision that only the store can make: bounds, what the topic keeps, what a later
message hides. The rest is bytes: any process with the log's files can read them and build the
response.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from store.format import Records
from store.light_queue import is_light
from store.message import PullStatus
from store.reads.sql import ConditionError

if TYPE_CHECKING:
    from store.reads.filters import Filter


@dataclass(frozen=True, slots=True)
class Pulled:
    """Records from one queue, in queue order. `records[i]` has offset `queue_offsets[i]`."""

    status: PullStatus
    records: Records  # whole, as in the commit log
    queue_offsets: list[int]  # of the queue that was pulled: for a light queue its own offsets
    next_offset: int  # where the next pull begins
    min_offset: int
    max_offset: int  # exclusive
    given_at: int | None = None  # when these offsets were given; None: the queue has no message yet
    filter_errors: int = 0  # messages that an SQL filter could not judge: they do not match


class PullPlan(NamedTuple):
    """One pull: the records to read, in queue order, and where the queue continues."""

    topic: str
    queue_id: int
    offset: int  # the requested offset
    places: list[tuple[int, int]]  # physical offset and size
    queue_offsets: list[int]  # for each place, its offset in the queue that was pulled
    max_messages: int  # of the response: a filter may look at more
    wanted: Filter | None  # two tags may share a code: the records decide
    next_offset: int  # when all of the places are read
    min_offset: int
    max_offset: int  # exclusive
    given_at: int  # when these offsets were given: see MessageStore.with_given_at

    @property
    def size_bytes(self) -> int:
        """Total size of its records."""
        return sum(map(itemgetter(1), self.places))

    def misplaced(self, records: Records) -> int | None:
        """Index of the first record that is not in this queue at its offset.

        `records`: those of the first places. A light queue's records name the queue of their topic.
        """
        if is_light(self.topic):
            return None
        ids, offsets = records.column("queue_id"), records.column("queue_offset")
        wanted = self.queue_offsets[: len(records)]
        if offsets == wanted and ids == [self.queue_id] * len(ids):
            return None
        found = zip(ids, offsets, strict=True)
        return next(at for at, place in enumerate(found) if place != (self.queue_id, wanted[at]))

    def pulled(self, records: Records) -> Pulled:
        """Build the response. `records`: those of the first places; the next pull begins after
        them."""
        count = len(records)
        offsets = self.queue_offsets
        at = self.next_offset if count == len(offsets) else offsets[count]
        errors = 0
        if self.wanted is not None:
            found, errors = self._matching(self.wanted, records)
            if len(found) > self.max_messages:
                at = offsets[found[self.max_messages]]
                del found[self.max_messages :]
            records = Records(records[index] for index in found)
            offsets = [offsets[index] for index in found]
        elif count < len(offsets):
            offsets = offsets[:count]
        if records:
            status = PullStatus.FOUND
        else:
            status = PullStatus.NO_NEW_MESSAGE if at == self.offset else PullStatus.NO_MATCH
        low, high, given_at = self.min_offset, self.max_offset, self.given_at
        return Pulled(status, records, offsets, at, low, high, given_at, errors)

    def _matching(self, wanted: Filter, records: Records) -> tuple[list[int], int]:
        """Indexes of the matching records, one more than the limit at most, and the number that
        could not be evaluated."""
        found: list[int] = []
        errors = 0
        for index, record in enumerate(records):
            try:
                if wanted.matches(record):
                    found.append(index)
                    if len(found) > self.max_messages:
                        break
            except ConditionError:
                errors += 1
        return found, errors
