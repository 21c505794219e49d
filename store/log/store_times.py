"""The rules for everything that depends on time: expiry, limits of topics, searches, the filter.

The wall clock of a machine may be wrong, and may be set. Three rules hold all the same:

* *Store times follow the clock.* A record gets the wall clock as its store time. If that is behind
  the last record by up to ten minutes, store times stand still. If it is further behind, the clock
  was ahead before, or is behind now, and store times fall to it. Each fall is noted durably before
  the first record with an earlier time is appended, so the log's falls are always known.
* *A jump forward has no immediate effect.* `now_ms` follows the wall clock, but after a jump
  forward at most `CATCH_UP` times as fast as time passes, and by at most `MOST_STEP_MS` between two
  calls. It follows a jump back at once. Everything that releases, delivers or expires uses
  `now_ms`, never the wall clock: even with a clock that is a year ahead, only what a bounded step
  allows is removed. It continues from where another process left it, as long as the machine has not
  been restarted.
* *A store time is judged.* `of` is the time that a record counts as stored at: its store time, or
  the latest earlier one if that is later, since a record was not stored before an earlier record. A
  store time in the future is not evidence: it counts as what the clock said at the next fall.
  Judged times never fall along the log, so searches may be binary. (If a clock was ahead, and then
  behind all earlier times, a search may be inexact until that future has passed.)

The compaction filter uses store times, not judged times. `oldest_from` is a lower bound of the
store times of all records from some position on.
"""

from __future__ import annotations

import json
import logging
import struct
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from store.base import Lock
from store.errors import StoreFormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from store.base import Clock
    from store.consume_queue import DispatchRequest
    from store.notes import Notes

logger = logging.getLogger(__name__)

#: Store times stand still while the clock is behind the last one by at most this much, ms.
CARRY_MS = 600_000
#: After a jump forward `now_ms` catches up by this many seconds each second, besides the second
#: that passes.
CATCH_UP = 10
#: And by this much between two looks at most, ms.
MOST_STEP_MS = 600_000
#: A clock that is wrong by more than this is reported, s.
WRONG_S = 60
#: Maximum number for a log of another writer; above it neighbouring falls are merged.
MOST_FALLS = 128

_STATE = "store_time_falls"
_FORM = struct.Struct(">qqq")
_LEFT_STATE = "clock"
#: The note of version 0.1 about an adopted log: how far times fall at most, and below which offset.
_OLD_STATE = "store_time_fall"
_OLD_FORM = struct.Struct(">qq")


class Fall(NamedTuple):
    """A position in the log where store times fall."""

    offset: int  # physical, where the first record with the earlier time begins
    before_ms: int  # store time of the record before it; 0: not known
    after_ms: int  # of the record at `offset`


Falls = tuple[Fall, ...]


class Left(NamedTuple):
    """The state of time that a process leaves to the next one."""

    boot: str  # identifies the machine's boot; "": unknown, so no later process continues from it
    monotonic_s: float
    now_ms: int


class StoreTimes:
    """The store's clock, and the meaning of store times.

    Thread: any; `fall` under the append lock. Locks: `_lock`, innermost.
    """

    def __init__(
        self,
        clock: Clock,
        falls: Falls = (),
        note: Callable[[Falls], None] = lambda _falls: None,
        left: Left | None = None,
    ) -> None:
        """`falls`: of the log, by offset. `note` makes falls durable, and tells the expiry of units
        how early store times may be; it may raise. `left`: from the previous process."""
        # Constant after construction.
        self._clock = clock
        self._note = note
        self._lock = Lock()
        #: Replaced as a whole, read freely.
        self.falls = falls
        # Guarded by _lock.
        self._now_ms = clock.now_ms()
        self._looked_ms = self._monotonic_ms()
        self._steady_ms = 0
        if left is not None and left.boot == _boot():
            left_ms = round(left.monotonic_s * 1000)
            if left_ms <= self._looked_ms:
                self._looked_ms, self._now_ms = left_ms, left.now_ms

    def now_ms(self) -> int:
        """The store's time, ms since 1970; it follows a jump forward step by step."""
        with self._lock:
            return self._look()

    def steady_ms(self) -> int:
        """Like `now_ms`, but never falls while this process lives, so a clock that is set back
        prolongs nothing."""
        with self._lock:
            self._look()
            return self._steady_ms

    def _look(self) -> int:
        """Must hold _lock."""
        wall_ms, monotonic_ms = self._clock.now_ms(), self._monotonic_ms()
        passed_ms = max(0, monotonic_ms - self._looked_ms)
        step_ms = min(CATCH_UP * passed_ms, MOST_STEP_MS)
        self._looked_ms = monotonic_ms
        self._now_ms = min(wall_ms, self._now_ms + passed_ms + step_ms)
        self._steady_ms = max(self._steady_ms + passed_ms, self._now_ms)
        return self._now_ms

    def _monotonic_ms(self) -> int:
        """Whole milliseconds; frequent calls lose no fraction of one."""
        return round(self._clock.monotonic_s() * 1000)

    def left(self) -> Left:
        """The state for the next process to continue from."""
        now_ms = self.now_ms()
        return Left(_boot(), self._looked_ms / 1000, now_ms)

    def jumped_ms(self) -> int:
        """How far the wall clock is ahead of `now_ms` after a jump, in ms."""
        return max(0, self._clock.now_ms() - self.now_ms())

    def behind_ms(self, last_store_time_ms: int) -> int:
        """How far the clock is behind the last record, in ms."""
        return max(0, last_store_time_ms - self._clock.now_ms())

    def clock_warning(self, last_store_time_ms: int) -> str | None:
        """A sentence about a wrong clock; None if nothing is known to be wrong."""
        jumped_s = self.jumped_ms() // 1000
        if jumped_s > WRONG_S:
            return (
                f"the clock jumped forward and is {jumped_s} s ahead of the time that passed: "
                "expiry follows it slowly"
            )
        behind_s = self.behind_ms(last_store_time_ms) // 1000
        if behind_s > WRONG_S:
            return f"the clock is {behind_s} s behind the last message"
        return None

    def fall(self, offset: int, before_ms: int, after_ms: int) -> None:
        """Note a fall before the record with the earlier time is appended at `offset`. Durable on
        return. Raises what `note` raises; nothing is changed then."""
        # A power loss or a restore may have cut records whose falls were noted.
        before = [each for each in self.falls if each.offset <= offset]
        falls = bounded([*before, Fall(offset, before_ms, after_ms)])
        self._note(falls)
        self.falls = falls

    def of(self, offset: int, store_time_ms: int) -> int:
        """The judged time of the record at the physical offset, ms since 1970."""
        falls = self.falls
        if not falls:
            return store_time_ms
        now_ms = self.now_ms()
        found = 0
        for fall in falls:
            if fall.offset > offset:
                break
            found = max(found, self._believed(fall.before_ms, fall.offset - 1, now_ms))
        return max(found, self._believed(store_time_ms, offset, now_ms))

    def oldest_from(self, offset: int, store_time_ms: int) -> int:
        """A lower bound of the store times of all records from `offset` on, given the store time of
        the one there."""
        return min([store_time_ms, *(each.after_ms for each in self.falls if each.offset > offset)])

    def _believed(self, store_time_ms: int, offset: int, now_ms: int) -> int:
        if store_time_ms <= now_ms:
            return store_time_ms
        later = (each.after_ms for each in self.falls if each.offset > offset and each.before_ms)
        return min([store_time_ms, *later])


class FallFinder:
    """Finds the falls of a log that another program wrote, in one pass."""

    def __init__(self) -> None:
        self.found: Falls = ()
        self._last_ms = 0

    def look(self, requests: Sequence[DispatchRequest]) -> None:
        """Process the next records of the log, in log order."""
        last_ms = self._last_ms
        for request in requests:
            time_ms = request.store_time_ms
            if time_ms < last_ms:
                self.found = bounded([*self.found, Fall(request.physical_offset, last_ms, time_ms)])
            last_ms = time_ms
        self._last_ms = last_ms


def bounded(falls: Sequence[Fall]) -> Falls:
    """The same falls, or, if there are too many, half as many. Of each four consecutive falls the
    first and the last are kept, with the highest time before and the lowest time after any of them,
    so records between count as stored no earlier than they were."""
    if len(falls) <= MOST_FALLS:
        return tuple(falls)
    joined: list[Fall] = []
    for at in range(0, len(falls), 4):
        some = falls[at : at + 4]
        before_ms, after_ms = max(f.before_ms for f in some), min(f.after_ms for f in some)
        joined += [Fall(f.offset, before_ms, after_ms) for f in (some[0], some[-1])]
    return tuple(joined)


def _boot() -> str:
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def write_left(notes: Notes, left: Left) -> None:
    """Durable on return."""
    notes.put(_LEFT_STATE, json.dumps(left).encode())


def read_left(notes: Notes) -> Left | None:
    """The last written value; None if there is none, or it cannot be read, which is logged."""
    try:
        value = notes.get(_LEFT_STATE)
        left = None if value is None else Left(*json.loads(value))
    except (StoreFormatError, ValueError, TypeError) as error:
        logger.warning("cannot read the time that the last process left: %s", error)
        return None
    return left if left is not None and left.boot else None


def write_falls(notes: Notes, falls: Falls) -> None:
    """Durable on return."""
    notes.put(_STATE, b"".join(_FORM.pack(*fall) for fall in falls))


def read_falls(notes: Notes, oldest_ms: int) -> Falls:
    """Read the noted falls. `oldest_ms`: store time of the log's first record, for a log that
    version 0.1 adopted, which noted how far times fall but not where."""
    value = notes.get(_STATE)
    if value is not None:
        return tuple(Fall(*each) for each in _FORM.iter_unpack(value))
    old = notes.get(_OLD_STATE)
    if old is None:
        return ()
    by_ms, below_offset = _OLD_FORM.unpack(old)
    lowest_ms = max(0, oldest_ms - by_ms)
    return (Fall(below_offset, 0, lowest_ms),) if by_ms else ()
