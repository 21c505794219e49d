"""Keeps held records as long as needed, whatever the log's retention.

Before segments are dropped, their live held records are appended again, in the append that ends
them at the old place, so there is exactly one of each after any crash. One mechanism for everything
held: dead letters, delayed messages, and transactions. A Kind does what differs.
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
    from store.held.reads import Reads

logger = logging.getLogger(__name__)

#: What is appended again before one drop, while the disk has room.
_MOST_MOVED = 16_384
_MOST_MOVED_BYTES = 16 << 20


class Done(NamedTuple):
    """What one append moved, or several."""

    at: int | None  # place at which the next one goes on; None: nothing is left
    moved: int = 0
    bytes: int = 0  # of what was moved

    @property
    def is_enough(self) -> bool:
        return self.moved >= _MOST_MOVED or self.bytes >= _MOST_MOVED_BYTES


class Kind(Protocol):
    """A kind of held record, in queue 0 of topics of its own; records are named by their places
    there.

    Rows of the state say which are held; entries of this kind change them.
    """

    def topics(self) -> Iterator[str]:
        """Topics that may have such records."""
        ...

    def said(self, topic: str) -> str:
        """The topic's content, for log messages: "dead letters of group 'g'"."""
        ...

    def live_places(self, topic: str, first: int, behind: int) -> Iterator[int]:
        """Places first <= place < behind that have held records, ascending. May read records:
        raises CorruptRecordError, DamagedQueueError."""
        ...

    def move_some(self, topic: str, behind: int, done: Done) -> Done:
        """Move some held records from place `done.at` on, below `behind`. Decided under the append
        lock; each is appended together with the entry that ends it at its old place, unless it has
        ended.

        The result is added to `done`; its `at` is then higher, or None at the end. Raises what an
        append raises; CorruptRecordError, DamagedQueueError.
        """
        ...

    def given_up(self, topic: str, count: int) -> None:
        """Count records that are dropped with the log before their time."""
        ...


class Rolling:
    """Moves held records of all kinds before segments are dropped. Thread: that of retention.
    Locks: those of appends."""

    def __init__(self, queues: ConsumeQueueStore, reads: Reads, kinds: Sequence[Kind]) -> None:
        # Constant after construction.
        self._queues = queues
        self._reads = reads
        self._kinds = kinds
        #: Records that were appended again, since the store was opened.
        self.moved = 0

    def keep_below(self, end: int, *, is_pressed: bool) -> int:
        """Move what the log below `end` holds. Returns the physical offset below which everything
        is moved, at most `end`; the log may be dropped up to there.

        One call moves a bounded amount; a segment with more waits for the next call. If the disk
        `is_pressed`, or accepts no writes, it does not wait: the rest is given up, counted and
        logged. Raises what an append raises, except for a lack of space.
        """
        kept_below = end
        done = Done(None)
        for kind in self._kinds:
            for topic in kind.topics():
                with suppress(UnknownTopicError):  # it was deleted meanwhile
                    behind = self._behind(topic, end)
                    done = self._keep(kind, topic, behind, done)
                    if done.at is not None:
                        left = self._left(kind, topic, behind, done.at, is_pressed=is_pressed)
                        kept_below = min(kept_below, end if left is None else left)
        return kept_below

    def _keep(self, kind: Kind, topic: str, behind: int, before: Done) -> Done:
        """Move the records of one topic; `before`: what was done for others."""
        ((low, _),) = self._reads.bounds([(topic, 0)])
        done = before._replace(at=low)
        try:
            done = before._replace(at=next(kind.live_places(topic, low, behind), None))
            while done.at is not None and not done.is_enough:
                done = kind.move_some(topic, behind, done)
        except (*LACKS, CorruptRecordError, DamagedQueueError) as error:
            logger.error(
                "%s, from place %d on, cannot be appended again to be kept: %s",
                *(kind.said(topic), done.at, error),
            )
        finally:
            self.moved += done.moved - before.moved
        return done

    def _behind(self, topic: str, end: int) -> int:
        """The first place whose record is known not to be below that end of the log."""
        ((low, high),) = self._reads.bounds([(topic, 0)])
        behind = first_where(
            *(self._queues, topic, 0, low, high), lambda unit: unit.physical_offset >= end
        )[0]
        # The record of a unit that is missing there may be.
        return first_unit(self._queues, topic, 0, behind, high)[0]

    def _left(
        self, kind: Kind, topic: str, behind: int, first: int, *, is_pressed: bool
    ) -> int | None:
        """How far the log may be dropped although records from that place on are not moved; None if
        it is not limited."""
        if not is_pressed:
            units = self._queues.read_units(topic, 0, first, 1)
            # Where the unit is missing, nobody knows.
            at = units[0][1].physical_offset if units else 0
            logger.warning(
                "the log from %d on stays until %s are appended again", at, kind.said(topic)
            )
            return at
        count = 0
        try:
            for _ in kind.live_places(topic, first, behind):
                count += 1
        except (CorruptRecordError, DamagedQueueError) as error:
            logger.error("%s from place %d on are not counted: %s", kind.said(topic), first, error)
        kind.given_up(topic, count)
        logger.error(
            "%d %s go with the log before their time, those at places %d to %d: the disk is too "
            "full to keep them. Make room on it",
            *(count, kind.said(topic), first, behind - 1),
        )
        return None
