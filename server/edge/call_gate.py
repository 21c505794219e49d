"""Limits concurrent calls: in all, on one connection, and for one user.

A call whose kind is full is rejected at once, before its request is read, so it costs next to
nothing. If all places of a kind are taken, a caller with few calls still gets one of the reserved
places, so a burst of one user does not affect a quiet one. Without users, each connection counts as
one.

Pulls and streams wait for long, and are counted separately from calls that end on their own. So are
calls that need no authentication: a caller that takes all of their places takes none from users.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

from server.errors import TooManyCallsError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: A caller with fewer calls of a kind counts as quiet, and may use the reserved places.
QUIET_CALLS = 16
#: One place in this many is kept for them.
KEPT_SHARE = 8


class CallKind(enum.Enum):
    """Kinds of calls that are counted together, by what they wait for."""

    __hash__ = object.__hash__  # Enum's own is no C, and each call asks for it twice

    SHORT = "calls"  # ends on its own
    PULL = "pulls"  # may be parked until its queue grows
    STREAM = "streams"  # lasts as long as the client wants
    TELEMETRY = "telemetry streams"  # the same, one for each of RocketMQ's clients
    OPEN = "calls without a user"  # health calls, which need no user


#: Whose requests are waited for as long as the client wants.
STREAMS = frozenset({CallKind.STREAM, CallKind.TELEMETRY})


class Places(NamedTuple):
    """Limits for one kind of call."""

    of_peer: int
    in_all: int


class CallGate:
    """Counts running calls. Owned by the event loop's thread."""

    def __init__(self, places: Mapping[CallKind, Places]) -> None:
        self._counters = {kind: _Counter(limit) for kind, limit in places.items()}
        #: Number of calls that arrived, including rejected ones.
        self.came = 0

    def enter(self, kind: CallKind, peer: str, user: str = "") -> None:
        """Acquire a place for a call of that connection and user; "" for no user.

        Raises TooManyCallsError. Every successful call must be paired with exactly one `leave`.
        """
        self.came += 1
        counter = self._counters[kind]
        places = counter.places
        of_peer = counter.by_peer.get(peer, 0)
        if of_peer >= places.of_peer:
            raise TooManyCallsError(kind.value, "of one connection", places.of_peer)
        own = counter.by_user.get(user, 0) if user else of_peer
        if counter.in_all >= counter.open_to_all and (
            own >= QUIET_CALLS or counter.in_all >= places.in_all
        ):
            raise TooManyCallsError(kind.value, "of all connections", counter.open_to_all)
        counter.by_peer[peer] = of_peer + 1
        if user:
            counter.by_user[user] = own + 1
        counter.in_all += 1

    def leave(self, kind: CallKind, peer: str, user: str = "") -> None:
        """Release the place."""
        counter = self._counters[kind]
        counter.in_all -= 1
        _take_one(counter.by_peer, peer)
        if user:
            _take_one(counter.by_user, user)

    def under_way(self, kind: CallKind) -> int:
        """Number of running calls of that kind."""
        return self._counters[kind].in_all

    def is_half_full(self, kind: CallKind) -> bool:
        """Whether half of all places of that kind are taken."""
        counter = self._counters[kind]
        return 2 * counter.in_all >= counter.places.in_all


class _Counter:
    """The counter of one kind."""

    def __init__(self, places: Places) -> None:
        self.in_all = 0
        self.by_peer: dict[str, int] = {}
        self.by_user: dict[str, int] = {}
        self.places = places
        self.open_to_all = places.in_all - places.in_all // KEPT_SHARE


def _take_one(counts: dict[str, int], key: str) -> None:
    left = counts[key] - 1
    if left:
        counts[key] = left
    else:
        del counts[key]
