"""Store times that fall along the log: ours never do, those of a log taken over may.

A broker takes the wall clock as it is, and somebody may set it back. Expiry in the queues goes by
store time: with D the store time where the log begins now, it takes what was stored before D for
expired. Where times fall by as much as F, a record further on may be as old as D - F, and lives.
So until the log begins behind the last record that is older than one before it, F is taken off.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.consume_queue import DispatchRequest
    from store.notes import Notes

_NOTE = "store_time_fall"
_FORM = struct.Struct(">qq")


class TimeFall(NamedTuple):
    """By how much times fall at most, and the physical offset behind which none does."""

    by_ms: int = 0
    below_offset: int = 0

    def expired_before_ms(self, log_start: int, store_time_ms: int) -> int:
        """No record from `log_start` on is older, when the one there has that store time."""
        return store_time_ms - self.by_ms if log_start < self.below_offset else store_time_ms


class TimeFallFinder:
    """Finds them in one pass over the log."""

    def __init__(self) -> None:
        self.found = TimeFall()
        self._newest_ms = 0

    def look(self, requests: Sequence[DispatchRequest]) -> None:
        """The next records of the log, in its order."""
        newest_ms = self._newest_ms
        for request in requests:
            time_ms = request.store_time_ms
            if time_ms >= newest_ms:
                newest_ms = time_ms
            else:
                self.found = TimeFall(
                    max(self.found.by_ms, newest_ms - time_ms),
                    request.physical_offset + request.record_size,
                )
        self._newest_ms = newest_ms


def write_time_fall(notes: Notes, fall: TimeFall) -> None:
    """Durable on return."""
    notes.put(_NOTE, _FORM.pack(*fall))


def read_time_fall(notes: Notes) -> TimeFall:
    """What was written, or that times never fall."""
    value = notes.get(_NOTE)
    return TimeFall() if value is None else TimeFall(*_FORM.unpack(value))
