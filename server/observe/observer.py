"""The text for Prometheus: gathered in the loop and in a thread, at most once in CACHE_S."""

from __future__ import annotations

import asyncio
import logging
import socket
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, Protocol

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from server.observe.families import Gathered, Row, add_statistics
from server.observe.loop_watch import LoopWatch
from server.version import VERSION
from server.workers import Workers
from store.base import SystemClock
from store.errors import StoreClosedError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from prometheus_client.core import Metric

    from server.config import ServerConfig
    from server.metrics import Activity, CallMetrics, CallNumbers, Surveyed
    from server.stage import Stage
    from store.base import Counted
    from store.message_store import MessageStore

logger = logging.getLogger(__name__)

#: More frequent requests get the same text again.
CACHE_S = 1.0
#: RocketMQ's number for "may be read and written", and for "may be read".
_READ_WRITE, _READ = 6, 4

_RPC_LATENCY = Row("rocketmq_rpc_latency", "Duration of calls by method, ms.")
_MESSAGE_SIZE = Row(
    "rocketmq_message_size", "Bytes of a message in the log; for a batch, the average."
)
_IN = Row("rocketmq_messages_in_total", "Messages put; an empty topic stands for all others.")
_BYTES_IN = Row("rocketmq_throughput_in_total", "Bytes put, as stored in the log.")
_OUT = Row("rocketmq_messages_out_total", "Messages pulled; %LMQ% stands for all light queues.")
_BYTES_OUT = Row("rocketmq_throughput_out_total", "Bytes pulled.")
_REFUSALS = Row("kvcq_refusals_total", "Rejected calls and stream batches, by method and reason.")
_FAULTS = Row("kvcq_errors_total", "Errors that are the server's fault, by gRPC status code.")
_LOOP = Row("kvcq_loop_lag_seconds", "How late the event loop runs scheduled callbacks.")
_FSYNC = Row("kvcq_fsync_seconds", "Duration of flushes of the log.")
_WATERMARK = Row("rocketmq_processor_watermark", "Tasks waiting for a thread, by pool.")
_UNDER_WAY = Row("kvcq_calls_under_way", "Calls under way, by kind.")
#: Counted streams, by method.
_STREAMS = {
    "PutStream": Row("rocketmq_producer_connections", "Open streams of producers."),
    "Subscribe": Row("rocketmq_consumer_connections", "Open subscriptions."),
}
_STORAGE = Row("rocketmq_storage_size", "Bytes of the log.")
_FLUSH_BEHIND = Row("rocketmq_storage_flush_behind_bytes", "Bytes appended but not yet durable.")
_DISPATCH_BEHIND = Row(
    "rocketmq_storage_dispatch_behind_bytes", "Bytes appended but not yet dispatched."
)
_RESERVE = Row("rocketmq_storage_message_reserve_time", "Age of the oldest message, ms.")
_PERMISSION = Row("rocketmq_broker_permission", "6: reads and puts are possible; 4: only reads.")
_TOPICS = Row("rocketmq_topic_number", "Number of topics, without light queues.")
_LIGHT = Row("rocketmq_lmq_number", "Number of light queues with messages.")
_GROUPS = Row("rocketmq_consumer_group_number", "Number of groups.")
_LAG = Row(
    "rocketmq_consumer_lag_messages", "Lag: messages that the group has not committed, or not done."
)
_LAG_MS = Row("rocketmq_consumer_lag_latency", "Age of the oldest message of the lag, ms.")
_IN_FLIGHT = Row("rocketmq_consumer_inflight_messages", "Messages that receivers have now.")
_READY = Row("rocketmq_consumer_ready_messages", "Messages that were never delivered to the group.")
_AGAIN = Row("kvcq_consumer_waiting_again_messages", "Messages to be delivered again.")
_DEAD = Row("kvcq_dead_letters", "Dead letters that were neither redriven nor deleted.")
_DELIVERED = Row("kvcq_group_deliveries_total", "Messages handed over to receivers.")
_REDELIVERED = Row(
    "kvcq_group_redeliveries_total",
    "Of these, messages that were given back, or whose time with a receiver was over.",
)
_ACKNOWLEDGED = Row("kvcq_group_acknowledged_total", "Messages acknowledged.")
_GIVEN_BACK = Row("kvcq_group_given_back_total", "Messages given back.")
_LAG_AGE = Row("kvcq_group_lag_age_seconds", "Maximum age of the lag values.")
_CACHE_RATE = Row("rocketmq_rocksdb_rate_cache_hit", "Hit rate of the block cache, 0 to 1.")
_BUILD = Row("kvcq_build_info", "Always 1; the label has the version.")
_BLIND = Row("kvcq_store_unreadable", "1 if the store's numbers cannot be read; the log says why.")


class Source(Protocol):
    """What serves while the store is open."""

    store: MessageStore
    activity: Activity

    def levels_here(self) -> dict[str, float]:
        """Statistics that the event loop owns. For the loop's thread."""
        ...

    def waiting(self) -> dict[str, int]:
        """Work that waits for a thread, by thread pool. For the loop's thread."""
        ...

    def under_way(self) -> dict[str, int]:
        """Running calls, by kind. For the loop's thread."""
        ...


class _Seen(NamedTuple):
    """A snapshot of what the loop owns."""

    calls: CallNumbers
    late_s: Counted
    levels: Mapping[str, float]
    waiting: Mapping[str, int]
    under_way: Mapping[str, int]


class Observer:
    """Gathers metrics and builds their text.

    Owned by the event loop's thread. Thread: "metrics" reads the store and builds the text, one
    request at a time: any number of requests takes one thread, and none from the pools for calls.
    """

    def __init__(
        self,
        config: ServerConfig,
        stage: Stage,
        metrics: CallMetrics,
        source: Callable[[], Source | None],
    ) -> None:
        """`source` returns None while no store is open."""
        self._stage = stage
        self._metrics = metrics
        self._source = source
        self._clock = SystemClock()
        self._node = {
            "cluster": config.metrics_cluster,
            "node_type": "broker",
            "node_id": config.metrics_node or socket.gethostname(),
        }
        self._watch = LoopWatch(asyncio.get_running_loop())
        self._thread = Workers(1, "metrics")
        self._made: tuple[float, bytes] | None = None
        self._making: asyncio.Task[bytes] | None = None
        # Owned by the thread.
        self._registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        self._gathered = _Latest()
        self._registry.register(self._gathered)

    def start(self) -> None:
        """Watch the loop from now on."""
        self._watch.start()

    def close(self) -> None:
        """Wait for running work. Blocks for at most `server.workers.CLOSE_S`."""
        self._watch.stop()
        self._thread.close()

    async def text(self) -> tuple[bytes, str]:
        """The metrics in Prometheus' text format, and the content type."""
        if self._made is None or monotonic() - self._made[0] >= CACHE_S:
            if self._making is None:
                self._making = asyncio.create_task(self._make(), name="metrics")
            # The first caller may be gone before the text is complete.
            text = await asyncio.shield(self._making)
        else:
            text = self._made[1]
        return text, CONTENT_TYPE_PLAIN_0_0_4

    async def _make(self) -> bytes:
        try:
            source = self._source()
            levels = {
                "server.ready": float(self._stage.is_ready),
                "server.draining": float(self._stage.is_draining),
                "server.opening_progress": (
                    1.0 if self._stage.is_open else self._stage.progress[1]
                ),
            }
            seen = _Seen(
                self._metrics.read(),
                self._watch.read(),
                levels if source is None else {**levels, **source.levels_here()},
                {} if source is None else source.waiting(),
                {} if source is None else source.under_way(),
            )
            text = await self._thread.run(self._text_of, seen, source)
            self._made = (monotonic(), text)
            return text
        finally:
            self._making = None

    # --- in the thread ---------------------------------------------------------------------

    def _text_of(self, seen: _Seen, source: Source | None) -> bytes:
        gathered = Gathered(self._node)
        gathered.add(_BUILD, 1, {"version": VERSION})
        self._add_calls(gathered, seen)
        add_statistics(gathered, seen.levels)
        if source is not None:
            try:
                self._add_store(gathered, source.store)
                _add_surveyed(gathered, source.activity.find(), self._clock.now_ms())
            except StoreClosedError:
                pass  # the server ends
            except StoreError as error:
                logger.warning("cannot read the metrics of the store: %s", error)
                gathered.add(_BLIND, 1)
            else:
                gathered.add(_BLIND, 0)
        self._gathered.families = gathered.families()
        return generate_latest(self._registry)

    def _add_calls(self, gathered: Gathered, seen: _Seen) -> None:
        calls = seen.calls
        gathered.add(Row("kvcq_uptime_seconds", "Since the process began."), calls.uptime_s)
        for method, counted in calls.calls_s.items():
            labels = {"protocol_type": "grpc", "request_code": method}
            gathered.add_histogram(_RPC_LATENCY, counted, labels, 1000)
        for (method, reason), count in calls.refusals.items():
            gathered.add(_REFUSALS, count, {"method": method, "reason": reason})
        for code, count in calls.faults.items():
            gathered.add(_FAULTS, count, {"code": code})
        gathered.add_histogram(_MESSAGE_SIZE, calls.message_bytes, {})
        gathered.add_histogram(_LOOP, seen.late_s, {})
        for topic, traffic in calls.traffic.items():
            for row, value in zip((_IN, _BYTES_IN, _OUT, _BYTES_OUT), traffic, strict=True):
                gathered.add(row, value, {"topic": topic})
        for group, deliveries in calls.deliveries.items():
            rows = (_DELIVERED, _REDELIVERED, _ACKNOWLEDGED, _GIVEN_BACK)
            for row, value in zip(rows, deliveries, strict=True):
                gathered.add(row, value, {"consumer_group": group})
        for method, row in _STREAMS.items():
            gathered.add(row, calls.streams.get(method, 0))
        for pool, count in seen.waiting.items():
            gathered.add(_WATERMARK, count, {"processor": pool})
        for kind, count in seen.under_way.items():
            gathered.add(_UNDER_WAY, count, {"kind": kind})

    def _add_store(self, gathered: Gathered, store: MessageStore) -> None:
        numbers = store.statistics()
        add_statistics(gathered, numbers)
        gathered.add_histogram(_FSYNC, store.health.flush_seconds, {})
        begin, end = numbers["store.log_start_offset"], numbers["store.log_appended_offset"]
        gathered.add(_STORAGE, end - begin)
        gathered.add(_FLUSH_BEHIND, numbers["store.flush_behind_bytes"])
        gathered.add(_DISPATCH_BEHIND, numbers["store.dispatch_behind_bytes"])
        takes_puts = not (numbers["store.failed"] or numbers["store.puts_refused_for_space"])
        gathered.add(_PERMISSION, _READ_WRITE if takes_puts else _READ)
        first_ms = store.maintenance.first_store_time_ms()
        age_ms = 0 if first_ms is None else max(0, self._clock.now_ms() - first_ms)
        gathered.add(_RESERVE, age_ms)
        for database in ("kvcq", "meta"):
            hits = numbers.get(f"{database}.block_cache_hits")
            if hits is not None:
                asked = hits + numbers[f"{database}.block_cache_misses"]
                gathered.add(_CACHE_RATE, hits / asked if asked else 0.0, {"database": database})


def _add_surveyed(gathered: Gathered, found: Surveyed, now_ms: int) -> None:
    if found.topics is not None:
        gathered.add(_TOPICS, found.topics)
    if found.light_queues is not None:
        gathered.add(_LIGHT, found.light_queues)
    if found.groups is not None:
        gathered.add(_GROUPS, found.groups)
    if found.lags_at_ms is not None:
        gathered.add(_LAG_AGE, max(0, now_ms - found.lags_at_ms) / 1000)
    for group, lags in found.lags.items():
        for topic, lag in lags.items():
            labels = {"consumer_group": group, "topic": topic}
            gathered.add(_LAG, lag.messages, labels)
            age_ms = 0 if lag.since_ms is None else max(0, now_ms - lag.since_ms)
            gathered.add(_LAG_MS, age_ms, labels)
            if lag.is_shared:
                gathered.add(_IN_FLIGHT, lag.in_flight, labels)
                gathered.add(_AGAIN, lag.waiting_again, labels)
                gathered.add(_READY, lag.messages - lag.in_flight - lag.waiting_again, labels)
    for group, letters in found.dead_letters.items():
        gathered.add(_DEAD, letters, {"consumer_group": group})


class _Latest:
    """The last result, as a collector for prometheus_client."""

    def __init__(self) -> None:
        self.families: Iterable[Metric] = ()

    def collect(self) -> Iterable[Metric]:
        return self.families
