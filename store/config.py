"""All settings of a store, checked once, with units in their names."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from store.bounds import check_settings
from store.errors import InvalidArgumentError
from store.light_queue import MOST_LIMITS, limits_of
from store.setting import bounds_of, fixed, setting

if TYPE_CHECKING:
    from pathlib import Path

_DAY_S = 86_400
_DAY_MS = _DAY_S * 1000
#: As RocketMQ has it. Without it, each dropped segment would have puts accepted and refused again.
_DISK_MARGIN = 0.05


class FlushMode(enum.Enum):
    """When a put is acknowledged."""

    ASYNC = "async"  # when its bytes are appended; a background flush follows
    SYNC = "sync"  # when its bytes are fsynced


@dataclass(frozen=True, kw_only=True)
class StoreConfig:
    """Settings of one store directory. Raises InvalidArgumentError, naming the field.

    Numbers without bounds of their own must be from 0 to 2**53.
    """

    root: Path

    # Commit log. Defaults are RocketMQ's.
    segment_bytes: int = setting(
        1 << 30,
        "size of a segment of the log, in bytes, a multiple of 4096; set when the store is made",
        bounds=(4096, 1 << 40),
        rocketmq="mappedFileSizeCommitLog",
    )
    max_body_bytes: int = setting(
        4 << 20, "largest body of a message", bounds=(1, 1 << 30), rocketmq="maxMessageSize"
    )
    store_host: tuple[str, int] = setting(
        ("127.0.0.1", 8081),
        "address and port in records and message ids; not set: those of the server",
        rocketmq="brokerIP1",
    )

    # Flush.
    flush_mode: FlushMode = setting(
        FlushMode.ASYNC,
        "when a put is acknowledged: `async`, when it is appended; `sync`, when it is on disk",
        rocketmq="flushDiskType",
    )
    flush_interval_ms: int = setting(
        500,
        "how often appended messages are flushed; only with `async`",
        bounds=(1, _DAY_MS),
        live=True,
        rocketmq="flushIntervalCommitLog",
    )

    # Retention.
    reserved_hours: float = setting(
        72.0,
        "how long messages are kept",
        bounds=(1e-6, 876_000),  # a century
        live=True,
        rocketmq="fileReservedTime",
    )
    light_hours: tuple[str, ...] = setting(
        (),
        "how long messages are visible in light queues, by prefix of their names: `device-=24`, "
        "hours; the longest prefix counts",
        live=True,
    )
    delete_when_hours: tuple[int, ...] = setting(
        (4,),
        "hours of the day, local time, in which expired segments are removed",
        live=True,
        rocketmq="deleteWhen",
    )
    disk_clean_ratio: float = setting(
        0.75,
        "above this share of the disk, expired segments are removed at any hour",
        bounds=(0.001, 1),
        live=True,
        rocketmq="diskMaxUsedSpaceRatio",
    )
    disk_full_ratio: float = setting(
        0.90,
        "above this share of the disk, puts are refused, until it is 0.05 lower",
        bounds=(0.001, 1),
        live=True,
        rocketmq="diskSpaceWarningLevelRatio",
    )
    reclaim_unexpired: bool | None = setting(
        None,
        "delete unexpired messages when the disk fills, from 0.05 below `disk_full_ratio` on; "
        "off: refuse puts; not set: as in the broker's settings if the store was taken over from "
        "one, otherwise off",
        live=True,
        rocketmq="cleanFileForciblyEnable",
    )

    # Topics and groups.
    auto_create_topics: bool = setting(
        True,
        "create a topic when its first message is put",
        live=True,
        rocketmq="autoCreateTopicEnable",
    )
    auto_create_groups: bool = setting(
        True,
        "create a shared group when it first receives",
        live=True,
        rocketmq="autoCreateSubscriptionGroup",
    )
    default_queue_count: int = setting(
        8,
        "queues of a topic that is created without a number",
        bounds=(1, 65_536),
        live=True,
        rocketmq="defaultTopicQueueNums",
    )

    # Transactions.
    max_open_transactions: int = setting(
        1_000_000,
        "transactions that are open at once, those that were given up among them; beyond, a new "
        "one is refused",
        bounds=(1, 100_000_000),
        live=True,
    )
    max_open_transactions_of_group: int = setting(
        100_000,
        "the same of one group of producers",
        bounds=(1, 100_000_000),
        live=True,
    )
    transaction_checks: int = setting(
        15,
        "how often producers are asked what became of a transaction, before it is kept for "
        "somebody to decide by hand; it counts only when a producer was there to be asked",
        bounds=(1, 1000),
        live=True,
        rocketmq="transactionCheckMax",
    )

    skip_damaged_records: bool = setting(
        False,
        "on: a replay leaves a damaged record out of the queues, and readers are told about the "
        "gap; off: a store with such a record does not open",
    )

    # The following are not set by operators.

    # The CRC of a record's header covers its body alone; without the item, a flipped bit in topic
    # or properties is not noticed. It takes 20 bytes, and RocketMQ reads it as one more property.
    crc_item: bool = True
    # Segments are created ahead: two, or more small ones. Without that, each roll waits for the
    # disk. A disk without room for three segments needs a smaller `segment_bytes`.
    preallocate: bool = True
    # A put that waits this long for the disk, for dispatch or for a segment is refused, as by
    # RocketMQ. Callers who cannot wait have a deadline of their own.
    sync_flush_timeout_s: float = fixed(5.0, bounds=(0.001, 3600))
    # How often disk and expiry are checked, as RocketMQ has it.
    clean_interval_s: float = fixed(10.0, bounds=(0.01, 365 * _DAY_S))
    # One request lists all queues of a topic, so their number bounds its size.
    max_queue_count: int = fixed(65_536, bounds=(1, 65_536))
    # Queues of topics whose next offset is in memory: 30 MB. Others are looked up in RocksDB.
    hot_queue_limit: int = fixed(131_072, bounds=(16, 100_000_000))
    # Memory for next offsets of light queues, 20 to 80 bytes each. Others are looked up.
    light_offset_bytes: int = fixed(512 << 20, bounds=(0, 1 << 40))
    # While dispatch is farther behind the log than this, a second or two of work, puts wait, and
    # are finally rejected. Otherwise a slow disk would let the replay after a crash grow.
    max_dispatch_lag_bytes: int = fixed(256 << 20, bounds=(1 << 16, 1 << 62))
    # RocksDB is flushed after this time or this much log, which bounds the replay after a crash.
    kv_flush_interval_s: float = fixed(30.0, bounds=(0.001, 365 * _DAY_S))
    kv_flush_bytes: int = fixed(512 << 20, bounds=(1, 1 << 62))
    # Expired units stay in RocksDB for about this long.
    expiry_margin_s: int = fixed(600, bounds=(2, 365 * _DAY_S))
    # Records farther behind the end are read with pread, so that hot pages stay in memory.
    hot_read_bytes: int = fixed(1 << 30, bounds=(0, 1 << 62))
    # RocksDB counts reads, writes and cache hits; for metrics.
    rocksdb_statistics: bool = False

    def __post_init__(self) -> None:
        def check(name: str, ok: bool, rule: str) -> None:  # noqa: FBT001
            if not ok:
                raise InvalidArgumentError(name, f"{getattr(self, name)!r} is not {rule}")

        check_settings(self, _BOUNDS, InvalidArgumentError)
        try:
            limits = limits_of(self.light_hours)
        except ValueError as error:
            raise InvalidArgumentError(
                "light_hours",
                f"{str(error)!r} is not the beginning of a name, each once, = and hours above 0: "
                "device-=24",
            ) from None
        check("light_hours", len(limits) <= MOST_LIMITS, f"{MOST_LIMITS} limits at most")
        check("segment_bytes", self.segment_bytes % 4096 == 0, "a multiple of 4096")
        check(
            "store_host",
            _is_host(self.store_host),
            "an address and a port from 0 to 65535",
        )
        check(
            "delete_when_hours",
            all(type(hour) is int and 0 <= hour <= 23 for hour in self.delete_when_hours),
            "hours from 0 to 23",
        )
        check(
            "disk_full_ratio",
            self.disk_clean_ratio <= self.disk_full_ratio,
            "from disk_clean_ratio to 1",
        )
        check("reclaim_unexpired", self.reclaim_unexpired in (None, True, False), "true or false")
        check(
            "default_queue_count",
            self.default_queue_count <= self.max_queue_count,
            "from 1 to max_queue_count",
        )

    @property
    def disk_pressed_ratio(self) -> float:
        """Above this share of the disk, unexpired segments are removed too if `reclaim_unexpired`
        is on; at or below it, refused puts are accepted again."""
        return max(self.disk_clean_ratio, self.disk_full_ratio - _DISK_MARGIN)


_BOUNDS = bounds_of(StoreConfig)


def _is_host(value: object) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) == 2
        and isinstance(value[0], str)
        and type(value[1]) is int
        and 0 <= value[1] <= 65_535
    )
