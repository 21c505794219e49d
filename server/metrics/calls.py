"""Counters of the gRPC edge, read by AdminService.GetStatistics and Prometheus."""

from __future__ import annotations

import logging
from collections import Counter
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from server.metrics.traffic import GroupTraffic, TopicTraffic
from store.base import Histogram

if TYPE_CHECKING:
    from collections.abc import Mapping

    from server.metrics.traffic import Deliveries, Traffic
    from store.base import Counted

logger = logging.getLogger(__name__)

#: Asking for the numbers must not change them.
_NOT_COUNTED = frozenset({"GetStatistics", "GetActivity"})

#: Durations of calls, seconds: RocketMQ's bounds of rocketmq_rpc_latency, and some between them.
CALL_BOUNDS_S = (0.001, 0.003, 0.005, 0.007, 0.01, 0.02, 0.05, 0.1, 0.3, 1.0, 2.0, 3.0)
#: Sizes of messages in the log, bytes: RocketMQ's bounds of rocketmq_message_size.
SIZE_BOUNDS = (1 << 10, 4 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20)


#: Errors that are the server's fault. They are also counted by code, from 0 on, so that monitoring
#: sees the first one as a rise.
FAULTS = ("DATA_LOSS", "INTERNAL")


class CallNumbers(NamedTuple):
    """A snapshot of all counters, for readers in other threads."""

    uptime_s: float
    calls_s: Mapping[str, Counted]  # by method
    refusals: Mapping[tuple[str, str], int]  # by method and reason
    faults: Mapping[str, int]  # by code
    counts: Mapping[str, int]
    streams: Mapping[str, int]  # number of open ones, by method
    message_bytes: Counted
    traffic: Mapping[str, Traffic]  # by topic
    deliveries: Mapping[str, Deliveries]  # by shared group


class CallMetrics:
    """Counts calls, errors, time, and messages put and pulled. Owned by the event loop's thread."""

    def __init__(self, topic_rows: int = 0, group_rows: int = 0) -> None:
        """`topic_rows`, `group_rows`: number of topics and shared groups with separate counts."""
        self._calls: dict[str, Histogram] = {}
        self._refusals: Counter[tuple[str, str]] = Counter()
        self._faults = dict.fromkeys(FAULTS, 0)
        self._counts: Counter[str] = Counter()
        self._streams: Counter[str] = Counter()
        self._message_bytes = Histogram(SIZE_BOUNDS)
        self._traffic = TopicTraffic(topic_rows)
        #: Counts of shared groups.
        self.groups = GroupTraffic(group_rows)
        self._begun_s = monotonic()

    def ended(self, method: str, seconds: float) -> None:
        """A call of `method` ended, with or without an error."""
        if method not in _NOT_COUNTED:
            logger.debug("%s ended after %.1f ms", method, seconds * 1000)
            try:
                self._calls[method].add(seconds)
            except KeyError:
                histogram = self._calls[method] = Histogram(CALL_BOUNDS_S)
                histogram.add(seconds)

    def stream_began(self, method: str) -> None:
        """A stream of `method` opened; `stream_ended` closes it."""
        self._streams[method] += 1

    def stream_ended(self, method: str) -> None:
        self._streams[method] -= 1

    def refused(self, method: str, reason: str, code: str) -> None:
        """A call, or a batch in a stream, failed with an error."""
        self._refusals[method, reason] += 1
        if code in self._faults:
            self._faults[code] += 1

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a counter of the server, such as `messages_put`."""
        self._counts[name] += amount

    def acknowledged(self, group: str, messages: int) -> None:
        """Count messages that the group is done with."""
        self.count("messages_acknowledged", messages)
        self.groups.acknowledged(group, messages)

    def put_one(self, topic: str, size: int) -> None:
        """Count one stored message, with its bytes in the log."""
        self._counts["messages_put"] += 1
        self._message_bytes.add(size)
        self._traffic.put(topic, 1, size)

    def put(self, topics: Mapping[str, int], size: int) -> None:
        """Count stored messages: number by topic, and bytes of all in the log."""
        messages = sum(topics.values())
        self._counts["messages_put"] += messages
        self._message_bytes.add(size / messages, messages)
        self._traffic.put_all(topics, size / messages)

    def pulled(self, topic: str, messages: int, size: int) -> None:
        """Count messages that were read from a topic or light queue; `size`: bytes sent."""
        if messages:
            self._counts["messages_pulled"] += messages
            self._traffic.pulled(topic, messages, size)

    def read(self) -> CallNumbers:
        """All counters since the start of the process."""
        return CallNumbers(
            monotonic() - self._begun_s,
            {method: histogram.read() for method, histogram in self._calls.items()},
            dict(self._refusals),
            dict(self._faults),
            dict(self._counts),
            dict(self._streams),
            self._message_bytes.read(),
            self._traffic.read(),
            self.groups.read(),
        )

    def traffic(self) -> Mapping[str, Traffic]:
        """By topic."""
        return self._traffic.read()

    def statistics(self) -> dict[str, float]:
        """All counters since the start of the process, except the traffic by topic."""
        values: dict[str, float] = {"server.uptime_s": monotonic() - self._begun_s}
        for method, histogram in self._calls.items():
            calls = histogram.read()
            values[f"server.calls.{method}"] = calls.times
            values[f"server.seconds.{method}"] = calls.total
        for (method, reason), refusals in self._refusals.items():
            values[f"server.refusals.{method}.{reason}"] = refusals
        for name, amount in self._counts.items():
            values[f"server.{name}"] = amount
        return values
