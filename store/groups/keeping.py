"""Keeps dead letters of shared groups for as long as the group's settings say, independent of the
log's retention.

Before segments are dropped, their live dead letters are appended again. The same append ends them
at the old place, so exactly one copy exists after any crash. Dead letters of reader groups expire
with the log like any message.
"""

from __future__ import annotations

import logging
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING

from store.base import Lock
from store.errors import CorruptRecordError, DamagedQueueError, UnknownTopicError
from store.groups.dead_letters import moved, topic_of
from store.groups.letter_box import candidates
from store.held import is_final
from store.state import DEAD_LETTERS, NOWHERE, LetterEnd, LetterEnded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store.groups.letter_box import LetterBox
    from store.groups.turn import Turn
    from store.groups.turns import Turns
    from store.held import Done
    from store.puts import AppendPath
    from store.state import Tables

logger = logging.getLogger(__name__)

#: Groups that one call of `look` checks, and dead letters that it ends in each.
_GROUPS_A_LOOK = 256
_LETTERS_A_LOOK = 1000
_PAGE = 256


class Keeping:
    """Dead letters as a kind of held record.

    Thread: any. Locks: `_look`, before the turn's.
    """

    def __init__(
        self,
        appends: AppendPath,
        tables: Tables,
        box: LetterBox,
        turns: Turns,
    ) -> None:
        """`tables`: the state at the dispatch point."""
        # Constant after construction.
        self._appends = appends
        self._tables = tables
        self._box = box
        self._run = turns.run
        self._look = Lock()
        # Guarded by _look. The topic that `look` continues behind; None: from the first.
        self._looked_at: str | None = None
        #: Numbers of dead letters since the store was opened; may be read without a lock.
        self.moved = 0
        self.expired = 0
        self.lost = 0

    # --- before segments go: see store/held/rolling.py ---------------------------------------

    def topics(self) -> Iterator[str]:
        return map(topic_of, self._groups(None))

    def _groups(self, after: str | None) -> Iterator[str]:
        """Shared groups that have a dead-letter topic, by name."""
        while page := self._tables.list_topics(DEAD_LETTERS, after, _PAGE):
            after = page[-1].name
            names = [each.name.removeprefix(DEAD_LETTERS) for each in page]
            yield from (name for name in names if self._tables.shared_group(name) is not None)

    def describe(self, topic: str) -> str:
        return f"dead letters of group {topic.removeprefix(DEAD_LETTERS)!r}"

    def live_places(self, topic: str, first: int, behind: int) -> Iterator[int]:
        return self._tables.live_places(topic, first, behind)

    def move_some(self, topic: str, behind: int, done: Done) -> Done:
        (after, expired, lost), _ = self._run(partial(self._move_some, topic, behind, done))
        self.moved += after.moved - done.moved
        self.expired += expired
        self.lost += lost
        return after

    def given_up(self, topic: str, count: int) -> None:
        del topic
        self.lost += count

    def _move_some(self, topic: str, behind: int, done: Done, turn: Turn) -> tuple[Done, int, int]:
        """Returns the progress, and the numbers of expired and of lost letters. Damaged letters are
        lost; raises DamagedQueueError while one may still become readable."""
        group = topic.removeprefix(DEAD_LETTERS)
        expired = lost = 0
        try:
            turn.place(topic)
        except UnknownTopicError:
            return done._replace(at=None), 0, 0
        low, _ = self._box.places(group)
        since_ms = self._box.since_ms(group, turn.tables)
        assert done.at is not None, "something is left"
        for place in turn.tables.live_places(topic, max(done.at, low), behind):
            if not turn.takes_messages or turn.is_full or done.is_enough:
                return done._replace(at=place), expired, lost
            try:
                letter = self._box.read(topic, turn.tables, [place]).get(place)
            except (CorruptRecordError, DamagedQueueError) as error:
                if not is_final(error):
                    raise
                logger.error("the dead letter of group %r there is not kept: %s", group, error)
                turn.add(LetterEnded(topic, place, place, NOWHERE, low, LetterEnd.GIVEN_UP))
                lost += 1
                continue
            if letter is None:
                continue  # dropped by the retention of its topic
            if letter.time_ms <= since_ms:
                turn.add(LetterEnded(topic, letter.offset, place, NOWHERE, low, LetterEnd.EXPIRED))
                expired += 1
                continue
            to = turn.next_offset(topic)
            entry = LetterEnded(topic, letter.offset, place, to, low, LetterEnd.MOVED)
            turn.append(entry, moved(group, letter))
            done = done._replace(moved=done.moved + 1, bytes=done.bytes + len(letter.record))
        return done._replace(at=None), expired, lost

    # --- when their time is over -----------------------------------------------------------

    def look(self) -> None:
        """End expired dead letters of some groups. The next call continues with the next groups.
        Raises what an append raises."""
        with self._look:
            self._appends.check_open()
            after = self._looked_at
            groups = list(islice(self._groups(after), _GROUPS_A_LOOK))
            self._looked_at = topic_of(groups[-1]) if len(groups) == _GROUPS_A_LOOK else None
            for group in groups:
                if next(self._ends(group, self._tables), None) is not None:
                    self.expired += self._run(partial(self._end_some, group))[0]

    def _end_some(self, group: str, turn: Turn) -> int:
        """End expired letters of the group in this turn. Returns how many."""
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
        """Yield entries that end the oldest letters, up to the first one that has not expired.
        Unreadable letters stay until their segment is dropped."""
        topic = topic_of(group)
        low, high = self._box.places(group)
        since_ms = self._box.since_ms(group, tables)
        every = candidates(topic, tables, (low, high), -1)
        for offset, place in chain.from_iterable(every):
            if place >= high:
                return  # not dispatched yet
            try:
                letter = self._box.read(topic, tables, [place]).get(place)
            except (CorruptRecordError, DamagedQueueError):
                continue
            if letter is None:  # dropped by retention
                yield LetterEnded(topic, offset, place, NOWHERE, low, LetterEnd.GIVEN_UP)
            elif letter.offset == offset:
                if letter.time_ms > since_ms:
                    return
                yield LetterEnded(topic, offset, place, NOWHERE, low, LetterEnd.EXPIRED)
