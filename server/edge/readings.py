"""Requests that are being read, and ways to end slow reads: after a timeout, or to make room.

gRPC collects the bytes of a request outside of Python. So a read can only be judged by its age, and
ended by cancelling its task.
"""

from __future__ import annotations

import asyncio
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from server.edge.call_gate import STREAMS, CallKind
from server.errors import MemoryFullError, RequestLateError
from server.in_turns import in_turns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: How long a request may take to arrive, by the kind of its call; requests of a stream have no
#: limit. A call without a user asks for a health status: 30 bytes. The largest request of a user
#: takes 120 s at a megabit a second.
LATE_S = {CallKind.OPEN: 5.0, CallKind.SHORT: 120.0, CallKind.PULL: 120.0}
#: A stream that has received nothing for this long may be ended to make room for another one. Our
#: own client keeps one open for later use, and can do without it.
UNSENT_S = 5.0
#: A request that has not arrived within this time is slow, and may be ended to make room.
SLOW_S = 0.05


class _Reading(NamedTuple):
    task: asyncio.Task[object]
    since_s: float


_Chosen = tuple[CallKind, object, _Reading]
_TOO_SLOW = "this request arrived too slowly"


class Readings:
    """Tracks requests that are being read. Owned by the event loop's thread."""

    def __init__(self, now_s: Callable[[], float] = monotonic) -> None:
        self._now_s = now_s
        # Oldest first.
        self._by_kind: dict[CallKind, dict[object, _Reading]] = {kind: {} for kind in CallKind}
        # Streams that have received nothing yet.
        self._unsent: dict[CallKind, dict[object, _Reading]] = {kind: {} for kind in STREAMS}
        self._ended: dict[object, Exception] = {}
        self._is_ending_streams = False

    def count(self, kind: CallKind) -> int:
        """Number of calls of that kind whose request is being read."""
        return len(self._by_kind[kind])

    @property
    def of_streams(self) -> bool:
        """Whether a request of a stream is being read."""
        return any(self._by_kind[kind] for kind in STREAMS)

    @property
    def of_others(self) -> bool:
        """Whether a request of a unary call is being read."""
        return any(self._by_kind[kind] for kind in LATE_S)

    def begin(self, call: object, kind: CallKind, *, is_first: bool = False) -> None:
        """The current task starts to read a request; `is_first`: of a stream. Must be paired with
        exactly one `end`. The task may be cancelled meanwhile; `why_ended` then returns the reason.
        """
        task = asyncio.current_task()
        assert task is not None
        self._by_kind[kind][call] = reading = _Reading(task, self._now_s())
        if is_first and kind in STREAMS:
            self._unsent[kind][call] = reading

    def end(self, call: object, kind: CallKind) -> None:
        """The request was read, or its read was ended."""
        del self._by_kind[kind][call]
        if unsent := self._unsent.get(kind):
            unsent.pop(call, None)
        if self._ended:
            self._ended.pop(call, None)

    def why_ended(self, call: object) -> Exception | None:
        """The error that rejects the call; None if its read was not ended from here."""
        return self._ended.get(call)

    def end_late(self) -> None:
        """Cancel reads that take longer than LATE_S."""
        now_s = self._now_s()
        for kind, late_s in LATE_S.items():
            for call, reading in self._by_kind[kind].items():
                if now_s - reading.since_s <= late_s:
                    break
                self._end(call, reading, RequestLateError(late_s))

    def end_oldest(self, kind: CallKind) -> None:
        """Cancel the oldest read, to make room for another call. For streams only one that received
        nothing within UNSENT_S."""
        is_stream = kind in STREAMS
        now_s = self._now_s()
        for call, reading in (self._unsent if is_stream else self._by_kind)[kind].items():
            age_s = now_s - reading.since_s
            if is_stream and age_s <= UNSENT_S:
                return
            if call not in self._ended:
                self._end(call, reading, RequestLateError(age_s))
                return

    def end_newer_half(self, *, streams: bool) -> None:
        """Cancel the newer half of the slow reads, to make room in memory. Those of `streams`,
        whose requests may not have been sent yet, come last, a few in a turn of the loop: there may
        be thousands of idle ones. All others end at once, since their requests are on their way."""
        chosen = [each for kind in LATE_S for each in self._slow(kind)]
        chosen.sort(key=lambda each: each[2].since_s)
        if len(chosen) <= 1 and streams and not self._is_ending_streams:
            chosen += [each for kind in STREAMS for each in self._slow(kind)]
            in_turns(self._end_streams(chosen[(len(chosen) + 1) // 2 :]))
            return
        for _, call, reading in chosen[(len(chosen) + 1) // 2 :]:
            self._end(call, reading, MemoryFullError(_TOO_SLOW))

    def _slow(self, kind: CallKind) -> list[_Chosen]:
        slow_s = self._now_s() - SLOW_S
        return [
            (kind, call, reading)
            for call, reading in self._by_kind[kind].items()
            if reading.since_s <= slow_s and call not in self._ended
        ]

    def _end_streams(self, chosen: list[_Chosen]) -> Iterator[Callable[[], None]]:
        self._is_ending_streams = True
        for kind, call, reading in chosen:
            if self._by_kind[kind].get(call) is reading:  # the request has not arrived meanwhile
                yield partial(self._end, call, reading, MemoryFullError(_TOO_SLOW))
        self._is_ending_streams = False

    def _end(self, call: object, reading: _Reading, error: Exception) -> None:
        if call not in self._ended:
            self._ended[call] = error
            reading.task.cancel()
