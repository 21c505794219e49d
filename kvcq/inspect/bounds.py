"""Checks the bounds: each must belong to a queue that has or had units.

A bound that differs from its queue's last unit is found with the units.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq.inspect.findings import Kind
from kvcq.inspect.rows import BAD_ROW
from kvcq.state_store import KvStateStore
from kvcq.tables import (
    BOUNDS,
    DELETIONS_KEY,
    DISPATCHED_KEY,
    UNITS,
    pack_i64,
    unit_key,
    unit_prefix,
    unpack_bounds_key,
    unpack_max,
)
from store.consume_queue import LastUnit

if TYPE_CHECKING:
    from kvcq.engine import Pair
    from kvcq.inspect.rows import Rows

_ALWAYS = 1 << 62


def look_at_bounds(lookup: Rows) -> None:
    """Raises EngineFailedError. Memory: one page of rows."""
    state_point = KvStateStore(lookup.engine).point
    for rows in lookup.pages(BOUNDS, "rows of offset", 0):
        bounds = [bound for row in rows if (bound := _bound(lookup, row, state_point))]
        keys = [unit_key(*bound[:3]) for bound in bounds]
        there = lookup.engine.multi_get(UNITS, keys) if keys else []
        for bound, unit in zip(bounds, there, strict=True):
            if unit is None and not _has_units(lookup, bound):
                _tell(lookup, Kind.WRONG_BOUND, "a bound with a unit", bound)


def _bound(lookup: Rows, row: Pair, state_point: int) -> LastUnit | None:
    """The bound to compare with the units; None if there is no need to."""
    key, value = row
    if key in (DISPATCHED_KEY, DELETIONS_KEY):
        if len(value) != 8:
            lookup.bad_row(BOUNDS, key, value)
        return None
    try:
        topic, marker, queue_id = unpack_bounds_key(key)
        physical_offset, queue_offset = unpack_max(value)
    except BAD_ROW:
        lookup.bad_row(BOUNDS, key, value)
        return None
    if marker != "max":
        return None
    bound = LastUnit(topic, queue_id, queue_offset, physical_offset)
    if lookup.checkpoint <= physical_offset < state_point:
        return None  # left by sealed files: the next start replays the log up to there
    if physical_offset >= lookup.checkpoint:
        _tell(lookup, Kind.BEYOND_CHECKPOINT, f"no row above {lookup.checkpoint}", bound)
        return None
    if not lookup.admission.is_live(topic, _ALWAYS):
        _tell(lookup, Kind.DEAD_ROW, "no row", bound)
        return None
    return bound if physical_offset >= lookup.log.start_offset else None


def _has_units(lookup: Rows, bound: LastUnit) -> bool:
    """Whether the queue has any unit up to the bound."""
    prefix = unit_prefix(bound.topic, bound.queue_id)
    end = prefix + pack_i64(bound.queue_offset + 1)
    return bool(lookup.engine.scan(UNITS, prefix + pack_i64(0), end, limit=1))


def _tell(lookup: Rows, kind: Kind, expected: str, bound: LastUnit) -> None:
    found = f"{(bound.physical_offset, bound.queue_offset)}"
    lookup.tell(kind, BOUNDS, expected, found, **bound._asdict())
