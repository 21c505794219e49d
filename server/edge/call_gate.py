"""How many calls may be under way, in all and for one peer.

A peer is one connection. A call that finds its kind full is refused at once, before its request is
read, so it costs next to nothing. When all places of a kind are taken, a peer with few calls still
gets one of the places kept for it: a neighbour's burst does not reach a quiet peer.

Pulls and streams wait for long, and are counted apart from the calls that end by themselves.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

from server.errors import TooManyCallsError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: A peer with fewer calls of a kind is quiet: it may take one of the places that are kept.
QUIET_CALLS = 16
#: One place in so many is kept for quiet peers.
KEPT_SHARE = 8


class CallKind(enum.Enum):
    """What a call waits for decides with which others it is counted."""

    SHORT = "calls"  # ends by itself
    PULL = "pulls"  # may be parked until its queue grows
    STREAM = "streams"  # lasts as long as the client wants


class Places(NamedTuple):
    """Calls of one kind that may be under way."""

    of_peer: int
    in_all: int


class CallGate:
    """Counts calls under way. Owned by the event loop's thread."""

    def __init__(self, places: Mapping[CallKind, Places]) -> None:
        self._counters = {kind: _Counter(kind, limit) for kind, limit in places.items()}

    def set_places(self, places: Mapping[CallKind, Places]) -> None:
        """From now on so many. Calls above that go on; new ones are refused meanwhile."""
        for kind, limit in places.items():
            self._counters[kind].set_places(limit)

    def enter(self, kind: CallKind, peer: str) -> None:
        """Take a place. Raises TooManyCallsError; otherwise `leave` must follow, once."""
        self._counters[kind].enter(peer)

    def leave(self, kind: CallKind, peer: str) -> None:
        """Give the place back."""
        self._counters[kind].leave(peer)

    def under_way(self, kind: CallKind) -> int:
        """Calls of that kind now."""
        return self._counters[kind].in_all


class _Counter:
    def __init__(self, kind: CallKind, places: Places) -> None:
        self.in_all = 0
        self._kind = kind
        self._by_peer: dict[str, int] = {}
        self.set_places(places)

    def set_places(self, places: Places) -> None:
        self._places = places
        self._open_to_all = places.in_all - places.in_all // KEPT_SHARE

    def enter(self, peer: str) -> None:
        own = self._by_peer.get(peer, 0)
        if own >= self._places.of_peer:
            raise TooManyCallsError(self._kind.value, "of one connection", self._places.of_peer)
        if self.in_all >= self._open_to_all and (
            own >= QUIET_CALLS or self.in_all >= self._places.in_all
        ):
            raise TooManyCallsError(self._kind.value, "of all connections", self._open_to_all)
        self._by_peer[peer] = own + 1
        self.in_all += 1

    def leave(self, peer: str) -> None:
        own = self._by_peer[peer] - 1
        self.in_all -= 1
        if own:
            self._by_peer[peer] = own
        else:
            del self._by_peer[peer]
