"""Limits of a user: connections, concurrent calls, bytes and messages a second.

Bytes are those of requests and responses; messages are those put and read. Rates are averaged over
seconds: a second's worth may be used at once, and the excess has to be waited for. Meanwhile calls
are rejected and streams are not read, so that the client's own buffers hold it back.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from server.errors import UserLimitError
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST = 1 << 50
#: A stream that is held back looks again this often: its limit may have been raised.
_LONGEST_PAUSE_S = 1.0
#: Streams that carry calls, for each call that may be in progress: a client has up to three open,
#: and none of them is a call itself.
_STREAMS_A_CALL = 4


class Limits(NamedTuple):
    """The limits of one user, over all its connections. 0: no limit."""

    connections: int = 0
    calls: int = 0
    bytes_per_s: int = 0
    messages_per_s: int = 0


NO_LIMITS = Limits()


def check_limits(limits: Limits) -> Limits:
    """Return `limits`. Raises InvalidArgumentError, naming the one that is out of bounds."""
    for name, value in zip(Limits._fields, limits, strict=True):
        if not 0 <= value <= _MOST:
            raise InvalidArgumentError(f"limits.{name}", f"{value} is not from 0 to {_MOST}")
    return limits


class _Bucket:
    """Fills at a rate, up to a second's worth. A single large amount may overdraw it."""

    def __init__(self, now_s: float) -> None:
        self._left = 0.0
        self._rate = 0
        self._at_s = now_s

    def refill(self, rate: int, now_s: float) -> None:
        if self._rate == 0:
            self._left = float(rate)  # the limit is new
        else:
            self._left = min(float(rate), self._left + (now_s - self._at_s) * rate)
        self._rate, self._at_s = rate, now_s

    def take(self, amount: int) -> None:
        self._left -= amount

    @property
    def wait_s(self) -> float:
        """Seconds until it may be used again; 0 if it may now."""
        if self._left > 0 or self._rate == 0:
            return 0.0
        return max(0.001, -self._left / self._rate)


class Usage:
    """Current usage of one user. Owned by the event loop's thread."""

    def __init__(
        self, user: str, limits: Limits = NO_LIMITS, now_s: Callable[[], float] = monotonic
    ) -> None:
        self._user = user
        self._now_s = now_s
        self._peers: dict[str, int] = {}  # calls in progress, by connection
        self._calls = 0
        self._streams = 0  # streams that carry calls
        self._bytes = _Bucket(now_s())
        self._messages = _Bucket(now_s())
        self.limits = limits

    @property
    def is_idle(self) -> bool:
        return not self._peers

    def begin(self, peer: str, *, carries: bool = False) -> None:
        """Begin a call, or a stream that `carries` calls. Raises UserLimitError. Every successful
        call must be paired with exactly one `end`.

        A connection counts while it has either.
        """
        limits = self.limits
        under_way = self._streams / _STREAMS_A_CALL if carries else self._calls
        if limits.calls and under_way >= limits.calls:
            raise UserLimitError(self._user, "calls", limits.calls)
        known = self._peers.get(peer)
        if known is None and limits.connections and len(self._peers) >= limits.connections:
            raise UserLimitError(self._user, "connections", limits.connections)
        self._peers[peer] = (known or 0) + 1
        self._streams += carries
        self._calls += not carries

    def end(self, peer: str, *, carries: bool = False) -> None:
        self._streams -= carries
        self._calls -= not carries
        left = self._peers[peer] - 1
        if left:
            self._peers[peer] = left
        else:
            del self._peers[peer]

    def count(self, size: int, messages: int = 0) -> None:
        """Count bytes and messages in either direction."""
        limits = self.limits
        if limits.bytes_per_s and size:
            self._bytes.refill(limits.bytes_per_s, self._now_s())
            self._bytes.take(size)
        if limits.messages_per_s and messages:
            self._messages.refill(limits.messages_per_s, self._now_s())
            self._messages.take(messages)

    def check(self) -> None:
        """Raises UserLimitError while a rate is overdrawn."""
        for name, bucket, rate in self._rates():
            if rate and bucket.wait_s:
                raise UserLimitError(self._user, name, rate)

    def wait_s(self) -> float:
        """How long to hold back now, in seconds."""
        return max((bucket.wait_s for _, bucket, rate in self._rates() if rate), default=0.0)

    async def pause(self) -> None:
        """Wait until no rate is overdrawn."""
        while wait_s := self.wait_s():
            await asyncio.sleep(min(wait_s, _LONGEST_PAUSE_S))

    def _rates(self) -> tuple[tuple[str, _Bucket, int], ...]:
        limits = self.limits
        if not (limits.bytes_per_s or limits.messages_per_s):
            return ()
        now_s = self._now_s()
        if limits.bytes_per_s:
            self._bytes.refill(limits.bytes_per_s, now_s)
        if limits.messages_per_s:
            self._messages.refill(limits.messages_per_s, now_s)
        return (
            ("bytes_per_s", self._bytes, limits.bytes_per_s),
            ("messages_per_s", self._messages, limits.messages_per_s),
        )
