"""Messages and bytes by topic, and deliveries by group, for the busiest; the others share one row.

A store may have millions of topics, and a monitoring system keeps a series for each name it ever
saw. So a bounded number of names have a row of their own. The choice is reviewed every minute, by
recent traffic; a name keeps its row unless another has twice its traffic.

Each row only rises. A name that gets a row starts at zero there; its earlier traffic stays in the
row of the others. So the sum of rates over all rows is always the rate of the server.
"""

from __future__ import annotations

from heapq import nlargest
from operator import itemgetter
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from store.light_queue import LMQ_PREFIX, is_light

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: The row of the others. No topic, and no group, has an empty name.
OTHERS = ""
#: Interval at which rows are assigned to names, seconds.
RANK_S = 60.0
#: Names without a row whose traffic is known at a time: about 100 bytes each.
CANDIDATES = 4096
#: A name takes the row of another one when it has this many times its traffic.
_STAYS = 2.0


class Traffic(NamedTuple):
    """Traffic since the row began."""

    messages_in: int
    bytes_in: int
    messages_out: int
    bytes_out: int


class Deliveries(NamedTuple):
    """Deliveries of a shared group, since the row began."""

    delivered: int  # how often messages were handed over
    delivered_again: int  # of these, messages that were delivered before
    acknowledged: int
    given_back: int


class _Rows:
    """Rows of the busiest names, and one for the others."""

    def __init__(
        self, columns: int, rows: int, now_s: Callable[[], float], candidates: int
    ) -> None:
        """`rows`: number of names with a row, 0 or more; `candidates`: how many others are
        tracked."""
        self._columns = columns
        self._most = rows
        self._candidates = candidates
        self._now_s = now_s
        self._rows: dict[str, list[int]] = {}
        self.others = [0] * columns
        # Traffic of late, that of earlier minutes counted half as much each minute.
        self._shares: dict[str, float] = {}
        self._ranked_s = now_s()

    def is_unknown(self, name: str) -> bool:
        """Whether it is not tracked, and there is no room to."""
        return name not in self._shares and len(self._shares) >= self._most + self._candidates

    def of(self, name: str, weight: float) -> list[int]:
        """The row for the name's traffic, to which `weight` is added."""
        shares = self._shares
        share = shares.get(name)
        if share is not None:
            shares[name] = share + weight
            row = self._rows.get(name)
            return self.others if row is None else row
        if len(self._rows) < self._most:
            row = self._rows[name] = [0] * self._columns
            shares[name] = weight
            return row
        if len(shares) < self._most + self._candidates:
            shares[name] = weight
        return self.others

    def read(self) -> dict[str, list[int]]:
        """All rows; that of the others is named OTHERS."""
        if self._now_s() - self._ranked_s >= RANK_S:
            self._rank()
        return {**self._rows, OTHERS: self.others}

    def _rank(self) -> None:
        self._ranked_s = self._now_s()
        rows = self._rows
        most = self._most
        # Half of the candidates make room for names that are not known yet.
        kept = nlargest(
            most + self._candidates // 2,
            (
                (name, share * _STAYS if name in rows else share)
                for name, share in self._shares.items()
                if share >= 1
            ),
            key=itemgetter(1),
        )
        self._rows = {name: rows.get(name) or [0] * self._columns for name, _ in kept[:most]}
        self._shares = {name: self._shares[name] / 2 for name, _ in kept}


class TopicTraffic:
    """Traffic by topic. Owned by the event loop's thread. Light queues share one row, named
    %LMQ%."""

    def __init__(
        self, rows: int, now_s: Callable[[], float] = monotonic, candidates: int = CANDIDATES
    ) -> None:
        """`rows`: number of topics with a row, 0 or more; `candidates`: how many others are
        tracked."""
        self._rows = _Rows(len(Traffic._fields), rows, now_s, candidates)

    def put(self, topic: str, messages: int, size: int) -> None:
        """Count stored messages of the topic; `size`: bytes in the log."""
        row = self._rows.of(topic, size)
        row[0] += messages
        row[1] += size

    def put_all(self, topics: Mapping[str, int], each: float) -> None:
        """Count stored messages: number by topic, and the average bytes of one."""
        for topic, messages in topics.items():
            if self._rows.is_unknown(topic):
                self._rows.others[0] += messages
                self._rows.others[1] += int(messages * each)
            else:
                self.put(topic, messages, int(messages * each))

    def pulled(self, topic: str, messages: int, size: int) -> None:
        """Count messages that were read from a topic or light queue; `size`: bytes sent."""
        row = self._rows.of(LMQ_PREFIX if is_light(topic) else topic, size)
        row[2] += messages
        row[3] += size

    def read(self) -> dict[str, Traffic]:
        """All rows; that of the others is named OTHERS."""
        return {topic: Traffic(*row) for topic, row in self._rows.read().items()}


class GroupTraffic:
    """Deliveries by shared group. Owned by the event loop's thread."""

    def __init__(self, rows: int, now_s: Callable[[], float] = monotonic) -> None:
        """`rows`: number of groups with a row, 0 or more."""
        self._rows = _Rows(len(Deliveries._fields), rows, now_s, CANDIDATES)

    def delivered(self, group: str, messages: int, again: int) -> None:
        """Count delivered messages; `again`: how many of them were redeliveries."""
        row = self._rows.of(group, messages)
        row[0] += messages
        row[1] += again

    def acknowledged(self, group: str, messages: int) -> None:
        self._rows.of(group, messages)[2] += messages

    def given_back(self, group: str, messages: int) -> None:
        self._rows.of(group, messages)[3] += messages

    def read(self) -> dict[str, Deliveries]:
        """All rows; that of the others is named OTHERS."""
        return {group: Deliveries(*row) for group, row in self._rows.read().items()}
