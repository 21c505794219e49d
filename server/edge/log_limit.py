"""A line of the log that anyone may cause is written once a second for each of them."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

EVERY_S = 1.0
#: Peers that are remembered; one that was forgotten may be logged again at once.
PEERS = 1024


class LogLimit:
    """Owned by one thread."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        # Peer to [when it was logged, lines left out since]; oldest first.
        self._peers: OrderedDict[str, list[float]] = OrderedDict()

    def take(self, peer: str) -> int | None:
        """How many lines of the peer were left out since its last; None when this one is to be."""
        now_s = self._now_s()
        entry = self._peers.get(peer)
        if entry is not None and now_s - entry[0] < EVERY_S:
            entry[1] += 1
            return None
        left_out = 0 if entry is None else int(entry[1])
        self._peers[peer] = [now_s, 0]
        self._peers.move_to_end(peer)
        if len(self._peers) > PEERS:
            self._peers.popitem(last=False)
        return left_out
