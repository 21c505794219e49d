"""What clients of a shared group did and were told, and whether that can be.

A history is written by the clients alone, and judged when all is over: the product is asked
nothing, and none of its code is used. Calls may overlap: only what one call was told before another
one began counts against the second. Time is the store's, as answers say it.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from itertools import count, pairwise
from typing import NamedTuple


class Place(NamedTuple):
    """Which message."""

    topic: str  # or light queue
    queue_id: int
    offset: int


class What(enum.Enum):
    """What a client wanted of a handle."""

    ACKNOWLEDGE = "acknowledged"
    GIVE_BACK = "gave back"
    HOLD = "held on to"


class Put(NamedTuple):
    """A message was stored."""

    place: Place
    key: str  # its ordering key; "": none


class Given(NamedTuple):
    """A client received a message. Calls are told from each other by when they began and ended."""

    began: int
    ended: int
    place: Place
    handle: str
    deliveries: int
    taken_ms: int  # when the lease began, by the store
    until_ms: int


class Answer(NamedTuple):
    """A client was told of a handle, or not."""

    began: int
    ended: int
    what: What
    handle: str
    is_done: bool | None  # None: there was no answer
    until_ms: int = 0  # of HOLD


class Dead(NamedTuple):
    """A message was seen among the dead letters, which were read from `began` on."""

    began: int
    place: Place


class Lost(NamedTuple):
    """The power was lost: deliveries before may be unknown to the store, and acknowledgements too,
    unless they were flushed before they were answered."""

    at: int
    is_flushed: bool


class History:
    """Thread: any; list appends and `next` of a count are atomic."""

    def __init__(self) -> None:
        self._moments = count(1)
        self.puts: list[Put] = []
        self.given: list[Given] = []
        self.answers: list[Answer] = []
        self.dead: list[Dead] = []
        self.losses: list[Lost] = []

    def now(self) -> int:
        """A moment; later ones are higher."""
        return next(self._moments)


def judge(history: History, *, is_complete: bool = True, in_order: bool = False) -> list[str]:
    """What cannot be, in words.

    `is_complete`: everything was received at the end until nothing more came, so what was put is
    done or dead. `in_order`: the group hands over one message of an ordering key at a time.
    """
    return _Judge(history).faults(is_complete=is_complete, in_order=in_order)


class _Judge:
    def __init__(self, history: History) -> None:
        self._history = history
        self._of_place: dict[Place, list[Given]] = defaultdict(list)
        self._of_handle: dict[str, Given] = {}
        self._answers: dict[str, list[Answer]] = defaultdict(list)
        for given in sorted(history.given):
            self._of_place[given.place].append(given)
            self._of_handle.setdefault(given.handle, given)
        for answer in sorted(history.answers, key=lambda each: each.began):
            self._answers[answer.handle].append(answer)
        self._dead: dict[Place, int] = {}
        for dead in history.dead:
            self._dead[dead.place] = max(self._dead.get(dead.place, 0), dead.began)

    def faults(self, *, is_complete: bool, in_order: bool) -> list[str]:
        found = list(self._unknown_handles())
        for place, given in self._of_place.items():
            found += self._of_one(place, given)
        found += self._dead_twice()
        if is_complete:
            found += [
                f"{put.place} was never done"
                for put in self._history.puts
                if not self._is_done(put.place) and put.place not in self._dead
            ]
        if in_order:
            found += self._out_of_order()
        return found

    def _unknown_handles(self) -> list[str]:
        return [
            f"{answer.handle} was never given to anybody, and was {answer.what.value}"
            for answer in self._history.answers
            if answer.is_done and answer.handle not in self._of_handle
        ]

    def _dead_twice(self) -> list[str]:
        """Those that were seen in one look."""
        seen: set[Dead] = set()
        twice = []
        for dead in self._history.dead:
            if dead in seen:
                twice.append(f"{dead.place} is two dead letters")
            seen.add(dead)
        return twice

    def _of_one(self, place: Place, given: list[Given]) -> list[str]:
        """Of one message."""
        found: list[str] = []
        done = [
            answer
            for each in given
            for answer in self._answers[each.handle]
            if answer.what is What.ACKNOWLEDGE and answer.is_done
        ]
        kept = [each for each in done if self._survives(each)]
        if len(kept) > 1:
            found.append(f"{place} was acknowledged {len(kept)} times")
        for answer in kept:
            found += [
                f"{place} was acknowledged, and delivered again"
                for each in given
                if each.began > answer.ended
            ]
            if self._dead.get(place, 0) > answer.ended:
                found.append(f"{place} was acknowledged, and is a dead letter")
        for one in given:
            for other in given:
                if other.began > one.ended and not self._was_lost(one.ended, other.began):
                    found += self._of_two(place, one, other)
        return found

    def _of_two(self, place: Place, one: Given, other: Given) -> list[str]:
        """The other delivery began after the one was told."""
        found: list[str] = []
        if other.deliveries <= one.deliveries:
            found.append(f"{place} was delivered for the {other.deliveries}. time twice")
        if other.handle == one.handle:
            found.append(f"{place} was given twice with one handle")
        until_ms = self._held_until(one, other.ended)
        if until_ms is not None and one.taken_ms <= other.taken_ms < until_ms:
            found.append(f"{place} was delivered while another had it until {until_ms}")
        found += [
            f"{place} was {answer.what.value} with a handle that was of no use any more"
            for answer in self._answers[one.handle]
            if answer.is_done
            and answer.began > other.ended
            # Otherwise the first one may be in force again: the later delivery is lost.
            and not self._was_lost(other.ended, answer.began)
        ]
        return found

    def _held_until(self, given: Given, by: int) -> int | None:
        """How long it was its receiver's at least; None: it was not, by then."""
        until_ms = given.until_ms
        for answer in self._answers[given.handle]:
            if answer.began > by or answer.is_done is False:
                continue
            if answer.what is not What.HOLD:
                return None
            if answer.is_done and answer.ended < by:
                until_ms = answer.until_ms
            else:
                until_ms = min(until_ms, answer.until_ms)
        return until_ms

    def _is_done(self, place: Place) -> bool:
        """Or it may be."""
        return any(
            answer.what is What.ACKNOWLEDGE and answer.is_done is not False
            for each in self._of_place.get(place, ())
            for answer in self._answers[each.handle]
        )

    def _survives(self, answer: Answer) -> bool:
        """Whether no loss of power can have undone it."""
        return all(loss.at < answer.began or loss.is_flushed for loss in self._history.losses)

    def _was_lost(self, first: int, last: int) -> bool:
        return any(first < loss.at < last for loss in self._history.losses)

    def _out_of_order(self) -> list[str]:
        by_key: dict[tuple[str, int, str], list[Place]] = defaultdict(list)
        for put in self._history.puts:
            if put.key:
                by_key[put.place.topic, put.place.queue_id, put.key].append(put.place)
        found: list[str] = []
        for (_, _, key), places in by_key.items():
            for before, place in pairwise(sorted(places)):
                if before in self._dead:
                    continue  # when it died is not known
                found += [
                    f"{place} of {key!r} was delivered before {before} was done"
                    for given in self._of_place.get(place, ())
                    if not self._is_done_by(before, given.ended)
                ]
        return found

    def _is_done_by(self, place: Place, moment: int) -> bool:
        return any(
            answer.what is What.ACKNOWLEDGE and answer.is_done is not False
            for each in self._of_place.get(place, ())
            for answer in self._answers[each.handle]
            if answer.began < moment
        )
