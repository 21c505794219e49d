"""Small stores for tests: segments of 64 KiB, no disk level, no background jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypedDict, Unpack

from kvcq.opening import open_store
from store.config import FlushMode, StoreConfig
from store.format.record import unpack_record
from tests.support.fake_clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from store.base import Clock
    from store.message_store import MessageStore

SEGMENT_BYTES = 64 << 10


class Settings(TypedDict, total=False):
    """What tests set."""

    segment_bytes: int
    max_body_bytes: int
    crc_item: bool
    preallocate: bool
    flush_mode: FlushMode
    flush_interval_ms: int
    sync_flush_timeout_s: float
    reserved_hours: float
    auto_create_topics: bool
    max_open_transactions: int
    max_open_transactions_of_group: int
    transaction_checks: int
    auto_create_groups: bool
    default_queue_count: int
    hot_queue_limit: int
    max_dispatch_lag_bytes: int
    expiry_margin_s: int
    hot_read_bytes: int
    light_offset_bytes: int
    light_hours: tuple[str, ...]
    skip_damaged_records: bool
    reclaim_unexpired: bool


def small_config(root: Path, **settings: Unpack[Settings]) -> StoreConfig:
    """Settings under which nothing happens by itself: the disk is never full, nothing expires."""
    base = StoreConfig(
        root=root,
        segment_bytes=SEGMENT_BYTES,
        preallocate=False,
        disk_clean_ratio=1.0,
        disk_full_ratio=1.0,
        delete_when_hours=(),
        clean_interval_s=1e6,
        flush_interval_ms=10_000_000,
        default_queue_count=4,
    )
    return replace(base, **settings)


def open_small(
    root: Path, clock: Clock | None = None, **settings: Unpack[Settings]
) -> MessageStore:
    """An open store without jobs: checkpoints and flushes are written when a test says so."""
    store = open_store(small_config(root, **settings), clock=clock or FakeClock())
    store._services.jobs.stop()
    return store


def bodies(records: Sequence[bytes]) -> list[bytes]:
    return [unpack_record(record).body for record in records]
