"""What a topic keeps, and what of a queue may therefore be hidden from readers.

A limit hides a message only if the message is past it; a message that is past it is hidden, one of
bytes once it is counted; and where a queue begins never goes back while the limits stay.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    from tests.campaign.model import Sent

#: The server follows a clock that jumps forward by this many seconds a second at most.
_CATCH_UP = 11
#: Of a record, without its topic, body and properties.
_RECORD_BYTES = 91
#: Of its properties, at most: keys, tag, the mark of its batch, three light queues.
_MOST_PROPERTY_BYTES = 700
_MOST_RECORD_BYTES = 5000
#: How far the time of a call may lie beside the time that the server looked at its clock.
SLACK_MS = 5


class Limits(NamedTuple):
    """What each queue of a topic keeps; 0 is no limit."""

    time_ms: int = 0
    size_bytes: int = 0
    messages: int = 0
    latest: bool = False


KEEP_ALL = Limits()


def choose(chance: random.Random, longest_ms: int) -> Limits:
    """No limit, one, or several together. `longest_ms`: no topic may keep messages longer."""
    times = [each for each in (700, 3000, 3_600_000) if each <= longest_ms]
    return Limits(
        chance.choice(times) if chance.random() < 0.4 else 0,
        chance.choice((1, 5000, 100_000)) if chance.random() < 0.4 else 0,
        chance.choice((1, 10, 100)) if chance.random() < 0.4 else 0,
        chance.random() < 0.3,
    )


class Bounds(NamedTuple):
    """Of one queue, as the server says."""

    low: int
    high: int
    #: When it had answered: `time.monotonic`, and milliseconds since 1970.
    answered_s: float
    answered_ms: float


@dataclass
class Kept:
    """What one topic or light queue keeps, and where its queues were seen to begin."""

    limits: Limits = KEEP_ALL
    #: A larger limit of bytes shows nothing again.
    least_bytes: int = 0
    #: What was hidden by a later message of its key stays so.
    was_latest: bool = False
    #: Where each queue began when it was looked at last.
    lows: dict[int, int] = field(default_factory=dict)

    @property
    def hides(self) -> bool:
        """Whether anything may be hidden."""
        return bool(self.limits != KEEP_ALL or self.least_bytes or self.was_latest)

    def change(self, limits: Limits) -> None:
        if limits == self.limits:
            return
        self.limits = limits
        if limits.size_bytes:
            self.least_bytes = min(self.least_bytes or limits.size_bytes, limits.size_bytes)
        self.was_latest |= limits.latest
        self.lows.clear()

    def goes_back(self, queue_id: int, low: int, *, clock_moved: bool) -> bool:
        """Whether the queue began later before. Notes where it begins now."""
        before = self.lows.get(queue_id, 0)
        self.lows[queue_id] = low
        return low < before and not (clock_moved and self.limits.time_ms)

    def why_hidden(
        self, queue: Queue, offset: int, sent: Sent, *, wrong_since_s: float | None
    ) -> str:
        """The limit that the message there is past; "": none, so readers must see it.

        `wrong_since_s`: `time.monotonic` since when the server's clock was not right all the time.
        A killed server's time is noted now and then, so the next one may catch up with a jump for
        as long as that. And stamps stand still meanwhile if the clock is behind.
        """
        assert sent.place is not None
        if self.was_latest and queue.has_later(sent.key, offset):
            return "latest"
        if offset >= queue.bounds.low:
            return ""
        limits = self.limits
        if limits.messages and offset < queue.bounds.high - limits.messages:
            return "messages"
        if self.least_bytes and queue.most_bytes_from(offset) > self.least_bytes:
            return "bytes"
        if wrong_since_s is not None:
            since_s = min(sent.sent_s, wrong_since_s)
            age_ms = (queue.bounds.answered_s - since_s) * 1000 * _CATCH_UP
        else:
            age_ms = queue.bounds.answered_ms - sent.place.store_time_ms
        if limits.time_ms and age_ms + SLACK_MS >= limits.time_ms:
            return "time"
        return ""


class Queue:
    """One queue, as the server and the model know it."""

    def __init__(self, bounds: Bounds, standing: Mapping[int, Sent]) -> None:
        """`standing`: what is known to stand there, by offset, seen or hidden."""
        self.bounds = bounds
        self._standing = standing
        self._last_of_key: dict[str, int] = {}
        for offset, sent in standing.items():
            self._last_of_key[sent.key] = max(offset, self._last_of_key.get(sent.key, 0))
        #: What the records from an offset on have at most.
        self._most_bytes = {bounds.high: 0}
        for offset in range(bounds.high - 1, min(standing, default=bounds.high) - 1, -1):
            known = standing.get(offset)
            size = (
                _MOST_RECORD_BYTES
                if known is None
                else _RECORD_BYTES + len(known.topic) + len(known.body) + _MOST_PROPERTY_BYTES
            )
            self._most_bytes[offset] = self._most_bytes[offset + 1] + size

    def has_later(self, key: str, offset: int) -> bool:
        """Whether a message behind the offset has the key."""
        return self._last_of_key.get(key, -1) > offset

    def most_bytes_from(self, offset: int) -> int:
        """What the records from there on have at most."""
        return self._most_bytes[offset]

    def least_bytes_kept(self) -> int:
        """What the records that readers see have at least."""
        return sum(
            _RECORD_BYTES + len(sent.body)
            for offset, sent in self._standing.items()
            if self.bounds.low <= offset < self.bounds.high
        )
