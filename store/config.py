"""All settings of a store, checked once, with units in their names."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pathlib import Path


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

        check("segment_bytes", self.segment_bytes >= 4096, "at least 4096")
        check("segment_bytes", self.segment_bytes % 4096 == 0, "a multiple of 4096")
        check("max_body_bytes", 0 < self.max_body_bytes <= 1 << 30, "from 1 to 1 GiB")
        check("flush_interval_ms", self.flush_interval_ms > 0, "above 0")
        check("flush_least_pages", self.flush_least_pages >= 0, "0 or more")
        check("group_commit_gather_ms", 0 <= self.group_commit_gather_ms <= 100, "from 0 to 100")
        check("sync_flush_timeout_s", self.sync_flush_timeout_s > 0, "above 0")
        check("reserved_hours", self.reserved_hours > 0, "above 0")
        check(
            "delete_when_hours",
            all(0 <= hour <= 23 for hour in self.delete_when_hours),
            "hours from 0 to 23",
        )
        check("disk_clean_ratio", 0 < self.disk_clean_ratio <= 1, "from 0 to 1")
        check(
            "disk_clean_forcibly_ratio",
            self.disk_clean_ratio <= self.disk_clean_forcibly_ratio <= 1,
            "from disk_clean_ratio to 1",
        )
        check(
            "disk_full_ratio",
            self.disk_clean_forcibly_ratio <= self.disk_full_ratio <= 1,
            "from disk_clean_forcibly_ratio to 1",
        )
        check(
            "default_queue_count",
            1 <= self.default_queue_count <= self.max_queue_count,
            "from 1 to max_queue_count",
        )
        check("hot_queue_limit", self.hot_queue_limit >= 16, "at least 16")
        check("expiry_margin_s", self.expiry_margin_s >= 2, "at least 2")
        check("kv_flush_interval_s", self.kv_flush_interval_s > 0, "above 0")
        check("max_dispatch_lag_bytes", self.max_dispatch_lag_bytes >= 1 << 16, "at least 65536")
