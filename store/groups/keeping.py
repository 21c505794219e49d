"""Dead letters are kept as long as their group says, whatever the log keeps, and no longer.

Before segments go, what they have of dead letters is appended again, each by the append that ends
it where it was: there is one of it, whatever crashes. Of shared groups alone: dead letters of
another group, or of none, go with the log as any message does.
"""

from __future__ import annotations

import logging
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

from store.base import Lock
from store.errors import LACKS, CorruptRecordError, DamagedQueueError, UnknownTopicError
from store.groups.dead_letters import moved, topic_of
from store.groups.letter_box import candidates
from store.reads import first_where
from store.state import DEAD_LETTERS, NOWHERE, LetterEnd, LetterEnded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store.consume_queue import ConsumeQueueStore
    from store.groups.letter_box import LetterBox
    from store.groups.turn import Turn
    from store.groups.turns import Turns
    from store.puts import AppendPath
    from store.state import Tables

logger = logging.getLogger(__name__)

#: What is appended again before one drop, while the disk has room.
_MOST_MOVED = 1024
_MOST_MOVED_BYTES = 16 << 20
#: Groups that one look for dead letters whose time is over takes, and letters of each.
_GROUPS_A_LOOK = 256
_LETTERS_A_LOOK = 1000
_PAGE = 256


class _Done(NamedTuple):
    """What one turn did, or several."""

    at: int | None  # place at which the next one goes on; None: nothing is left
    moved: int = 0
    bytes: int = 0  # of what was moved
    expired: int = 0

    @property
    def is_enough(self) -> bool:
        return self.moved >= _MOST_MOVED or self.bytes >= _MOST_MOVED_BYTES


class Keeping:
    """Thread: any. Locks: `_look`, before the turn's."""

    def __init__(
        self,
        appends: AppendPath,
        queues: ConsumeQueueStore,
        tables: Tables,
        box: LetterBox,
        turns: Turns,
    ) -> None:
        """`tables`: at the dispatch point."""
        # Constant after construction.
        self._appends = appends
        self._queues = queues
        self._tables = tables
        self._box = box
        self._run = turns.run
        self._look = Lock()
        # Guarded by _look: the topic that was looked at last.
        self._looked_at: str | None = None
        #: Dead letters since the store was opened; read freely.
        self.moved = 0
        self.expired = 0
        self.given_up = 0

    # --- before segments go ----------------------------------------------------------------

    def keep_below(self, end: int, *, is_pressed: bool) -> int:
        """What the log below `end` has of dead letters that are to be kept is appended again;
        returns the physical offset below which all of it is, `end` at most: so far the log may go.

        Some at a time: a segment that has more waits for the next call. When the disk `is_pressed`,
        or takes nothing any more, it does not wait: what is left is given up, counted and logged.
        Raises what an append raises, but for a lack of space.
        """
        kept_below = end
        done = _Done(None)
        for group in self._groups(None):
            done = self._keep(group, end, done)
            if done.at is not None:
                kept_below = min(kept_below, self._left(group, end, done.at, is_pressed=is_pressed))
        return kept_below

    def _groups(self, after: str | None) -> Iterator[str]:
        """Shared groups with a topic of dead letters, in the order of their names."""
        while page := self._tables.list_topics(DEAD_LETTERS, after, _PAGE):
            after = page[-1].name
            names = [each.name.removeprefix(DEAD_LETTERS) for each in page]
            yield from (name for name in names if self._tables.shared_group(name) is not None)

    def _keep(self, group: str, end: int, before: _Done) -> _Done:
        """Those of one group, and what was done `before` for others."""
        topic = topic_of(group)
        low, _ = self._box.places(group)
        behind = self._behind(group, end)
        done = before._replace(at=next(self._tables.live_places(topic, low, behind), None))
        try:
            while done.at is not None and not done.is_enough:
                plan = partial(self._move_some, group, behind, done)
                after, _ = self._run(plan)
                self.moved += after.moved - done.moved
                self.expired += after.expired - done.expired
                done = after
        except (*LACKS, CorruptRecordError, DamagedQueueError) as error:
            logger.error(
                "dead letters of group %r, from place %d on, cannot be appended again to be kept: "
                "%s",
                *(group, done.at, error),
            )
        return done

    def _behind(self, group: str, end: int) -> int:
        """The first place whose record is not below that end of the log."""
        places = self._box.places(group)
        return first_where(
            *(self._queues, topic_of(group), 0, *places), lambda unit: unit.physical_offset >= end
        )[0]

    def _move_some(self, group: str, behind: int, done: _Done, turn: Turn) -> _Done:
        topic = topic_of(group)
        try:
            turn.place(topic)
        except UnknownTopicError:
            return done._replace(at=None)
        low, _ = self._box.places(group)
        since_ms = self._box.since_ms(group, turn.tables)
        assert done.at is not None, "something is left"
        for place in turn.tables.live_places(topic, max(done.at, low), behind):
            if not turn.takes_messages or turn.is_full or done.is_enough:
                return done._replace(at=place)
            letter = self._box.read(topic, turn.tables, [place]).get(place)
            if letter is None:
                continue  # it went by a limit of its topic
            if letter.time_ms <= since_ms:
                turn.add(LetterEnded(topic, letter.offset, place, NOWHERE, low, LetterEnd.EXPIRED))
                done = done._replace(expired=done.expired + 1)
                continue
            to = turn.next_offset(topic)
            entry = LetterEnded(topic, letter.offset, place, to, low, LetterEnd.MOVED)
            turn.append(entry, moved(group, letter))
            done = done._replace(moved=done.moved + 1, bytes=done.bytes + len(letter.record))
        return done._replace(at=None)

    def _left(self, group: str, end: int, first: int, *, is_pressed: bool) -> int:
        """How far the log may go, though dead letters from that place on are not kept."""
        topic = topic_of(group)
        if not is_pressed:
            ((_, unit),) = self._queues.read_units(topic, 0, first, 1)
            logger.warning(
                "the log from %d on stays until dead letters of group %r are appended again",
                *(unit.physical_offset, group),
            )
            return min(end, unit.physical_offset)
        behind = self._behind(group, end)
        count = sum(1 for _ in self._tables.live_places(topic, first, behind))
        self.given_up += count
        logger.error(
            "%d dead letters of group %r go with the log before their time, those at places %d to "
            "%d: the disk is too full to keep them. Make room on it, or redrive or delete dead "
            "letters sooner",
            *(count, group, first, behind - 1),
        )
        return end

    # --- when their time is over -----------------------------------------------------------

    def look(self) -> None:
        """Dead letters whose time is over have ended, of some groups; the next call takes others.

        Raises what an append raises; CorruptRecordError, DamagedQueueError.
        """
        with self._look:
            self._appends.check_open()
            after = self._looked_at
            groups = list(islice(self._groups(after), _GROUPS_A_LOOK))
            self._looked_at = topic_of(groups[-1]) if len(groups) == _GROUPS_A_LOOK else None
            for group in groups:
                if next(self._ends(group, self._tables), None) is not None:
                    self.expired += self._run(partial(self._end_some, group))[0]

    def _end_some(self, group: str, turn: Turn) -> int:
        """How many have ended."""
        try:
            turn.place(topic_of(group))
        except UnknownTopicError:
            return 0
        expired = 0
        for entry in islice(self._ends(group, turn.tables), _LETTERS_A_LOOK):
            if turn.is_full:
                break
            turn.add(entry)
            expired += entry.how is LetterEnd.EXPIRED
        return expired

    def _ends(self, group: str, tables: Tables) -> Iterator[LetterEnded]:
        """What ends the oldest ones, up to the first that is to be kept."""
        topic = topic_of(group)
        low, high = self._box.places(group)
        since_ms = self._box.since_ms(group, tables)
        every = candidates(topic, tables, (low, high), -1)
        for offset, place in chain.from_iterable(every):
            if place >= high:
                return  # it is not dispatched yet
            letter = self._box.read(topic, tables, [place]).get(place)
            if letter is None:  # it went with the log, or by a limit of its topic
                yield LetterEnded(topic, offset, place, NOWHERE, low, LetterEnd.GIVEN_UP)
            elif letter.offset == offset:
                if letter.time_ms > since_ms:
                    return
                yield LetterEnded(topic, offset, place, NOWHERE, low, LetterEnd.EXPIRED)
