"""Keeps held records as long as needed, independent of the log's retention.

Before segments are dropped, their live held records are appended again. The same append ends them
at the old place, so exactly one copy exists after any crash. Used for dead letters, delayed
messages and transactions; a Kind implements what differs.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

from store.errors import LACKS, CorruptRecordError, DamagedQueueError, UnknownTopicError
from store.reads import first_unit, first_where

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from store.consume_queue import ConsumeQueueStore
    from store.reads import ReadPath

logger = logging.getLogger(__name__)

#: Most records, and bytes, that are appended again before one drop while the disk has room.
_MOST_MOVED = 16_384
_MOST_MOVED_BYTES = 16 << 20


class Done(NamedTuple):
    """Progress of moving, over one or several appends."""

    at: int | None  # place to continue at; None: nothing is left
    moved: int = 0
    bytes: int = 0  # of the moved records

    @property
    def is_enough(self) -> bool:
        return self.moved >= _MOST_MOVED or self.bytes >= _MOST_MOVED_BYTES


class Kind(Protocol):
    """A kind of held record, in queue 0 of topics of its own. A record's place is its queue offset
    there. Rows of the state say which records are held."""

    def topics(self) -> Iterator[str]:
        """Topics that may have such records."""
        ...

    def describe(self, topic: str) -> str:
        """The topic's content for log messages, such as "dead letters of group 'g'"."""
        ...

    def live_places(self, topic: str, first: int, behind: int) -> Iterator[int]:
        """Places first <= place < behind of held records, ascending. Raises CorruptRecordError,
        DamagedQueueError."""
        ...

    def move_some(self, topic: str, behind: int, done: Done) -> Done:
        """Move some held records at places done.at <= place < behind. Decided under the append
        lock: each record that has not ended is appended together with the entry that ends it at its
        old place.

        Returns `done` plus what was moved; its `at` is higher, or None at the end. Raises what an
        append raises, CorruptRecordError, DamagedQueueError.
        """
        ...

    def given_up(self, topic: str, count: int) -> None:
        """Count records that are lost, because the log is dropped before they were moved."""
        ...


class Rolling:
    """Moves held records of all kinds before segments are dropped. Thread: that of retention.
    Locks: those of appends."""

    def __init__(self, queues: ConsumeQueueStore, reads: ReadPath, kinds: Sequence[Kind]) -> None:
        # Constant after construction.
        self._queues = queues
        self._reads = reads
        self._kinds = kinds
        #: Number of records appended again since the store was opened.
        self.moved = 0

    def keep_below(self, end: int, *, is_pressed: bool) -> int:
        """Move the held records of the log below `end`. Returns the physical offset, at most `end`,
        below which the log may be dropped.

        One call moves a bounded amount; a segment with more waits for the next call. If the disk
        `is_pressed`, or is full, the rest is given up, counted and logged. Raises what an append
        raises, except for a lack of space.
        """
        kept_below = end
        done = Done(None)
        for kind in self._kinds:
            for topic in kind.topics():
                with suppress(UnknownTopicError):  # deleted meanwhile
                    behind = self._behind(topic, end)
                    done = self._keep(kind, topic, behind, done)
                    if done.at is not None:
                        left = self._left(kind, topic, behind, done.at, is_pressed=is_pressed)
                        kept_below = min(kept_below, end if left is None else left)
        return kept_below

    def _keep(self, kind: Kind, topic: str, behind: int, before: Done) -> Done:
        """Move the records of one topic. `before`: progress of the other topics."""
        ((low, _),) = self._reads.bounds([(topic, 0)])
        done = before._replace(at=low)
        try:
            done = before._replace(at=next(kind.live_places(topic, low, behind), None))
            while done.at is not None and not done.is_enough:
                done = kind.move_some(topic, behind, done)
        except (*LACKS, CorruptRecordError, DamagedQueueError) as error:
            logger.error(
                "%s from place %d on cannot be appended again to keep them: %s",
                *(kind.describe(topic), done.at, error),
            )
        finally:
            self.moved += done.moved - before.moved
        return done

    def _behind(self, topic: str, end: int) -> int:
        """The first place whose record is certainly at or above `end`."""
        ((low, high),) = self._reads.bounds([(topic, 0)])
        behind = first_where(
            *(self._queues, topic, 0, low, high), lambda unit: unit.physical_offset >= end
        )[0]
        # Places without a unit may have a record below it.
        return first_unit(self._queues, topic, 0, behind, high)[0]

    def _left(
        self, kind: Kind, topic: str, behind: int, first: int, *, is_pressed: bool
    ) -> int | None:
        """The physical offset below which the log may be dropped, if records from place `first` on
        are not moved; None: no limit."""
        if not is_pressed:
            units = self._queues.read_units(topic, 0, first, 1)
            # Without a unit the record may be anywhere, so nothing may be dropped.
            at = units[0][1].physical_offset if units else 0
            logger.warning(
                "the log from %d on is kept until %s are appended again", at, kind.describe(topic)
            )
            return at
        count = 0
        try:
            for _ in kind.live_places(topic, first, behind):
                count += 1
        except (CorruptRecordError, DamagedQueueError) as error:
            logger.error(
                "%s from place %d on are not counted: %s", kind.describe(topic), first, error
            )
        kind.given_up(topic, count)
        logger.error(
            "%d %s are lost with the dropped log, those at places %d to %d: the disk is too full "
            "to keep them. Free disk space",
            *(count, kind.describe(topic), first, behind - 1),
        )
        return None
