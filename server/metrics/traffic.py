"""Messages and bytes by topic, for the topics that have most of both; the others in one row.

A store may have millions of topics, and a monitoring system keeps a series for each name it ever
saw. So a bounded number of topics has a row of its own. Who has one is decided anew every minute,
by the traffic of late; a topic that has one keeps it unless another has twice its traffic.

Each row only rises. A topic that gets a row starts there at nothing: what it had before stays in
the row of the others. So a sum of rates over all rows is the rate of the server at any time.
"""

from __future__ import annotations

from heapq import nlargest
from operator import itemgetter
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from store.light_queue import LMQ_PREFIX, is_light

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: The row of the others. No topic has an empty name.
OTHERS = ""
#: How often it is decided who has a row, seconds.
RANK_S = 60.0
#: Topics without a row whose traffic is known at a time: about 100 bytes each.
CANDIDATES = 4096
#: So many times the traffic of a topic with a row takes the row away from it.
_STAYS = 2.0


class Traffic(NamedTuple):
    """Since the row began."""

    messages_in: int
    bytes_in: int
    messages_out: int
    bytes_out: int


class TopicTraffic:
    """Owned by the event loop's thread. Light queues have one row together, named %LMQ%."""

    def __init__(
        self, rows: int, now_s: Callable[[], float] = monotonic, candidates: int = CANDIDATES
    ) -> None:
        """`rows`: how many topics have one, 0 or more; `candidates`: how many others are known."""
        self._most = rows
        self._candidates = candidates
        self._now_s = now_s
        self._rows: dict[str, list[int]] = {}
        self._others = [0, 0, 0, 0]
        # Bytes of late, those of earlier minutes counted half as much each minute.
        self._shares: dict[str, float] = {}
        self._ranked_s = now_s()

    def put(self, topic: str, messages: int, size: int) -> None:
        """Messages of the topic were stored; `size` bytes in the log."""
        row = self._row_of(topic, size)
        row[0] += messages
        row[1] += size

    def put_all(self, topics: Mapping[str, int], each: float) -> None:
        """Messages were stored: how many by topic, and the bytes of one on average."""
        shares, others = self._shares, self._others
        is_full = len(shares) >= self._most + self._candidates
        for topic, messages in topics.items():
            if is_full and topic not in shares:
                others[0] += messages
                others[1] += int(messages * each)
            else:
                self.put(topic, messages, int(messages * each))

    def pulled(self, topic: str, messages: int, size: int) -> None:
        """Messages of a topic, or a light queue, were read; `size` bytes sent."""
        row = self._row_of(LMQ_PREFIX if is_light(topic) else topic, size)
        row[2] += messages
        row[3] += size

    def read(self) -> dict[str, Traffic]:
        """All rows; that of the others is named OTHERS."""
        if self._now_s() - self._ranked_s >= RANK_S:
            self._rank()
        found = {topic: Traffic(*row) for topic, row in self._rows.items()}
        found[OTHERS] = Traffic(*self._others)
        return found

    def _row_of(self, topic: str, size: int) -> list[int]:
        shares = self._shares
        share = shares.get(topic)
        if share is not None:
            shares[topic] = share + size
            row = self._rows.get(topic)
            return self._others if row is None else row
        if len(self._rows) < self._most:
            row = self._rows[topic] = [0, 0, 0, 0]
            shares[topic] = size
            return row
        if len(shares) < self._most + self._candidates:
            shares[topic] = size
        return self._others

    def _rank(self) -> None:
        self._ranked_s = self._now_s()
        rows = self._rows
        most = self._most
        # Half of the candidates make room for topics that are not known yet.
        kept = nlargest(
            most + self._candidates // 2,
            (
                (topic, share * _STAYS if topic in rows else share)
                for topic, share in self._shares.items()
                if share >= 1
            ),
            key=itemgetter(1),
        )
        self._rows = {topic: rows.get(topic) or [0, 0, 0, 0] for topic, _ in kept[:most]}
        self._shares = {topic: self._shares[topic] / 2 for topic, _ in kept}
