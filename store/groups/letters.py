"""Redrives dead letters to their original topic or light queue, and deletes them.

A redrive appends the message and the entry that ends the letter together, so concurrent calls and
crashes cannot redrive a letter twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from store.base import check_within
from store.errors import InvalidArgumentError, UnknownTopicError
from store.groups.dead_letters import redriven, topic_of
from store.groups.letter_box import UnseenError, candidates, named
from store.groups.limits import MOST_LETTERS
from store.state import NOWHERE, LetterEnd, LetterEnded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from store.groups.dead_letters import DeadLetter
    from store.groups.letter_box import LetterBox
    from store.groups.turn import Turn
    from store.groups.turns import Turns
    from store.puts import AppendPath


class Redriven(NamedTuple):
    """The result of a redrive."""

    redriven: int
    left: int  # not redriven: the original topic or light queue is deleted or unknown
    complete: bool  # False: there may be more letters behind `last`
    last: int  # offset of the last dead letter that was handled; -1: none
    end_offset: int  # see MessageStore.is_durable
    refused: str = ""  # `may` refused this topic; the call ended before that letter


@dataclass(frozen=True)
class _Round:
    """Progress of a call, over all its turns so far."""

    redriven: int = 0
    left: int = 0
    last: int = -1
    is_last: bool = False  # no dispatched letters remain
    refused: str = ""  # see Redriven


class Letters:
    """Redrives and deletes dead letters. Thread: any. All changes are decided in turns."""

    def __init__(self, appends: AppendPath, box: LetterBox, turns: Turns) -> None:
        # Constant after construction.
        self._appends = appends
        self._box = box
        self._run = turns.run

    def redrive(
        self,
        group: str,
        offsets: Sequence[int],
        max_messages: int,
        after: int,
        may: Callable[[str], bool],
        *,
        wait: bool,
    ) -> Redriven:
        """See SharedGroups.redrive."""
        _check_offsets(offsets)
        check_within("max_messages", max_messages, 1, MOST_LETTERS)
        self._box.places(group)
        wanted = sorted(set(offsets))
        done = _Round(last=after)
        end = self._appends.log.appended_offset
        while not (done.is_last or done.refused) and done.redriven + done.left < max_messages:
            # Retry: another call moved a letter, and its new place is not dispatched yet.
            self._appends.wait_acknowledged(end)
            plan = partial(self._redrive_some, group, wanted, max_messages, may, done)
            done, end = self._run(plan)
        if wait:
            self._appends.wait_acknowledged(end)
        return Redriven(done.redriven, done.left, done.is_last, done.last, end, done.refused)

    def _redrive_some(
        self,
        group: str,
        wanted: Sequence[int],
        most: int,
        may: Callable[[str], bool],
        done: _Round,
        turn: Turn,
    ) -> _Round:
        topic = topic_of(group)
        try:
            turn.place(topic)
        except UnknownTopicError:
            return replace(done, is_last=True)
        places = self._box.places(group)
        if wanted:
            behind = [each for each in wanted if each > done.last]
            found = named(topic, turn.tables, places, behind)
        else:
            found = candidates(topic, turn.tables, places, done.last)
        try:
            for letter in self._box.living(group, turn.tables, places, found):
                if done.redriven + done.left >= most or not turn.takes_messages:
                    return done
                if letter.topic and not may(letter.topic):
                    return replace(done, refused=letter.topic)
                is_done = self._redrive_one(group, letter, places[0], turn)
                done = _Round(done.redriven + is_done, done.left + (not is_done), letter.offset)
        except UnseenError:
            return done
        return replace(done, is_last=True)

    def _redrive_one(self, group: str, letter: DeadLetter, first: int, turn: Turn) -> bool:
        """Returns whether the letter can go back to where it came from."""
        try:
            origin = turn.place(letter.topic)
            message = redriven(letter, origin.queue_count)
        except (UnknownTopicError, InvalidArgumentError):
            return False
        ended = LetterEnded(
            *(topic_of(group), letter.offset, letter.place, NOWHERE, first), LetterEnd.REDRIVEN
        )
        turn.append(ended, message)
        return True

    def delete(self, group: str, offsets: Sequence[int], *, wait: bool) -> tuple[int, int]:
        """See SharedGroups.delete_dead_letters; also returns the log's end."""
        _check_offsets(offsets)
        if not offsets:
            raise InvalidArgumentError("offsets", "is empty")
        self._box.places(group)
        count, end = self._run(partial(self._delete, group, sorted(set(offsets))))
        if wait:
            self._appends.wait_acknowledged(end)
        return count, end

    def _delete(self, group: str, offsets: Sequence[int], turn: Turn) -> int:
        topic = topic_of(group)
        try:
            turn.place(topic)
        except UnknownTopicError:
            return 0
        places = self._box.places(group)
        count = 0
        for offset, place in chain.from_iterable(named(topic, turn.tables, places, offsets)):
            if place == offset and self._box.is_moved_here(topic, turn.tables, place):
                continue
            turn.add(LetterEnded(topic, offset, place, NOWHERE, places[0], LetterEnd.DELETED))
            count += 1
        return count


def _check_offsets(offsets: Sequence[int]) -> None:
    if len(offsets) > MOST_LETTERS:
        raise InvalidArgumentError("offsets", f"{len(offsets)} offsets, not {MOST_LETTERS} at most")
    for at, offset in enumerate(offsets):
        if not 0 <= offset < 1 << 63:
            raise InvalidArgumentError(f"offsets[{at}]", f"{offset} is not a queue offset")
