"""Rows of the derived database, one at a time."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from kvcq.tables import expiry_stamp, index_prefix
from kvcq.tables.values import pack_stamped_unit

if TYPE_CHECKING:
    from store.consume_queue import CqUnit


def pack_unit(unit: CqUnit) -> bytes:
    """Inverse of `unpack_unit`."""
    return pack_stamped_unit(*unit, expiry_stamp(unit.store_time_ms))


def index_key(topic: str, key: str, store_time_ms: int, physical_offset: int) -> bytes:
    """The key of one row of the key index."""
    return index_prefix(topic, key) + struct.pack(">qq", store_time_ms, physical_offset)
