"""All settings of a store, checked once, with units in their names."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from store.bounds import check_settings
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pathlib import Path

    from store.bounds import Bounds

_DAY_S = 86_400
_DAY_MS = _DAY_S * 1000


class FlushMode(enum.Enum):
    """When a put is acknowledged."""

    ASYNC = "async"  # when its bytes are appended; a background flush follows
    SYNC = "sync"  # when its bytes are fsynced


@dataclass(frozen=True, kw_only=True)
class StoreConfig:
    """Settings of one store directory. Raises InvalidArgumentError, naming the field."""

    root: Path

    # Commit log. Defaults are RocketMQ's: mappedFileSizeCommitLog, maxMessageSize.
    segment_bytes: int = 1 << 30
    max_body_bytes: int = 4 << 20
    crc_item: bool = True  # append the CRC of the whole record as its last property
    warm_up: bool = False  # touch every page of a new segment before it is used
    # Prepare the next segments ahead: two, more of small ones. Off: each is made when it is needed.
    preallocate: bool = True
    store_host: tuple[str, int] = ("127.0.0.1", 8081)  # goes into records and message ids

    # Flush (RocketMQ: flushIntervalCommitLog 500, LeastPages 4, ThoroughInterval 10000).
    flush_mode: FlushMode = FlushMode.ASYNC
    flush_interval_ms: int = 500
    flush_least_pages: int = 4
    flush_thorough_interval_ms: int = 10_000
    sync_flush_timeout_s: float = 5.0
    group_commit_gather_ms: float = 2.0  # between callers that are to share an fsync

    # Retention (RocketMQ: fileReservedTime 72, deleteWhen 04, 75/85/90 percent).
    reserved_hours: float = 72.0
    delete_when_hours: tuple[int, ...] = (4,)
    disk_clean_ratio: float = 0.75
    disk_clean_forcibly_ratio: float = 0.85
    disk_full_ratio: float = 0.90
    delete_batch_max: int = 10  # segments a run
    # Whether messages that have not expired are deleted above disk_clean_forcibly_ratio. Off:
    # they stay, and puts are refused above disk_full_ratio. None: as the broker had it that the
    # store was taken over from, if that is known, otherwise off.
    reclaim_unexpired: bool | None = None
    clean_interval_s: float = 10.0

    # Topics.
    auto_create_topics: bool = True
    default_queue_count: int = 8
    max_queue_count: int = 65_536  # queues of one topic
    max_light_queues: int = 4096  # light queues one message may stand in

    # Consume queue. 128 Ki hot queues are about 30 MB; nothing is kept per idle queue.
    hot_queue_limit: int = 131_072
    max_dispatch_lag_bytes: int = 256 << 20  # puts wait, then are refused, beyond this
    kv_flush_interval_s: float = 30.0  # replay after a crash is bounded by this
    kv_flush_bytes: int = 512 << 20  # and by this many bytes of log
    expiry_margin_s: int = 600  # expired units stay about this long

    # Reads. Farther than this behind the end a record is read with pread, off the hot pages.
    hot_read_bytes: int = 1 << 30

    # Damage. On: a damaged record that a replay meets is left out of the queues, as a hole that
    # readers are told of. Off: such a store is not opened.
    skip_damaged_records: bool = False

    def __post_init__(self) -> None:
        def check(name: str, ok: bool, rule: str) -> None:  # noqa: FBT001
            if not ok:
                raise InvalidArgumentError(name, f"{getattr(self, name)!r} is not {rule}")

        check_settings(self, _BOUNDS, InvalidArgumentError)
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
            "disk_clean_forcibly_ratio",
            self.disk_clean_ratio <= self.disk_clean_forcibly_ratio,
            "from disk_clean_ratio to 1",
        )
        check(
            "disk_full_ratio",
            self.disk_clean_forcibly_ratio <= self.disk_full_ratio,
            "from disk_clean_forcibly_ratio to 1",
        )
        check("reclaim_unexpired", self.reclaim_unexpired in (None, True, False), "true or false")
        check(
            "default_queue_count",
            self.default_queue_count <= self.max_queue_count,
            "from 1 to max_queue_count",
        )


#: Both included. What has none here: from 0 to 2**53.
_BOUNDS: dict[str, Bounds] = {
    "segment_bytes": (4096, 1 << 40),
    "max_body_bytes": (1, 1 << 30),
    "flush_interval_ms": (1, _DAY_MS),
    "flush_least_pages": (0, 1 << 20),
    "flush_thorough_interval_ms": (0, _DAY_MS),
    "sync_flush_timeout_s": (0.001, 3600),
    "group_commit_gather_ms": (0, 100),
    "reserved_hours": (1e-6, 876_000),  # a century
    "disk_clean_ratio": (0.001, 1),
    "disk_clean_forcibly_ratio": (0.001, 1),
    "disk_full_ratio": (0.001, 1),
    "delete_batch_max": (1, 1_000_000),
    "clean_interval_s": (0.01, 365 * _DAY_S),
    "default_queue_count": (1, 65_536),
    "max_queue_count": (1, 65_536),
    "max_light_queues": (0, 32_767),
    "hot_queue_limit": (16, 100_000_000),
    "max_dispatch_lag_bytes": (1 << 16, 1 << 62),
    "kv_flush_interval_s": (0.001, 365 * _DAY_S),
    "kv_flush_bytes": (1, 1 << 62),
    "expiry_margin_s": (2, 365 * _DAY_S),
    "hot_read_bytes": (0, 1 << 62),
}


def _is_host(value: object) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) == 2
        and isinstance(value[0], str)
        and type(value[1]) is int
        and 0 <= value[1] <= 65_535
    )
