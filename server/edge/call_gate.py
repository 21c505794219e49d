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

    __hash__ = object.__hash__  # Enum's own is no C, and each call asks for it twice

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
        self._counters = {kind: _Counter(limit) for kind, limit in places.items()}
        #: Calls that came, refused ones as well.
        self.came = 0

    def set_places(self, places: Mapping[CallKind, Places]) -> None:
        """From now on so many. Calls above that go on; new ones are refused meanwhile."""
        for kind, limit in places.items():
            self._counters[kind].set_places(limit)

    def enter(self, kind: CallKind, peer: str) -> None:
        """Take a place. Raises TooManyCallsError; otherwise `leave` must follow, once."""
        self.came += 1
        counter = self._counters[kind]
        own = counter.by_peer.get(peer, 0)
        if own >= counter.places.of_peer:
            raise TooManyCallsError(kind.value, "of one connection", counter.places.of_peer)
        if counter.in_all >= counter.open_to_all and (
            own >= QUIET_CALLS or counter.in_all >= counter.places.in_all
        ):
            raise TooManyCallsError(kind.value, "of all connections", counter.open_to_all)
        counter.by_peer[peer] = own + 1
        counter.in_all += 1

    def leave(self, kind: CallKind, peer: str) -> None:
        """Give the place back."""
        counter = self._counters[kind]
        own = counter.by_peer[peer] - 1
        counter.in_all -= 1
        if own:
            counter.by_peer[peer] = own
        else:
            del counter.by_peer[peer]

    def under_way(self, kind: CallKind) -> int:
        """Calls of that kind now."""
        return self._counters[kind].in_all


class _Counter:
    """Of one kind."""

    def __init__(self, places: Places) -> None:
        self.in_all = 0
        self.by_peer: dict[str, int] = {}
        self.set_places(places)

    def set_places(self, places: Places) -> None:
        self.places = places
        self.open_to_all = places.in_all - places.in_all // KEPT_SHARE
