"""Chooses cuts of the key space, so that each task writes one sorted file.

Spark's own range partitioning reads everything twice. A sample of a few thousand records shows the
distribution of keys in milliseconds. A bad cut makes files uneven, not wrong.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from kvcq.tables import pack_i64
from migration.columnar.derived_rows import derive
from migration.columnar.log_layout import open_segment
from migration.columnar.strings import WORD, Strings
from migration.columnar.walk import find_record, walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from migration.columnar.derived_rows import IndexRows, UnitRows
    from migration.columnar.liveness import Liveness
    from migration.columnar.log_layout import LogLayout
    from migration.columnar.unaligned import Bools, Ints

#: Prefix of a queue's unit keys, and a queue offset.
UnitKey = tuple[bytes, int]
#: Prefix of an index key, length of the message key, the key, time, physical offset; sorts like the
#: whole index key.
IndexKey = tuple[bytes, int, bytes, int, int]
_Key = TypeVar("_Key", IndexKey, UnitKey)

_PROBES = 96
_PROBE_RECORDS = 256


@dataclass(frozen=True)
class KeyCuts:
    """Inner bounds of the ranges, ascending; units as (prefix, queue offset)."""

    unit_edges: tuple[UnitKey, ...]
    index_edges: tuple[IndexKey, ...]

    @property
    def unit_ranges(self) -> int:
        return len(self.unit_edges) + 1

    @property
    def ranges(self) -> int:
        """Number of ranges of both families; units come first."""
        return self.unit_ranges + len(self.index_edges) + 1

    def unit_parts(self, units: UnitRows) -> Ints:
        """The number of the range that each unit belongs to."""
        edges = [prefix for prefix, _ in self.unit_edges]
        below = [bisect_left(edges, prefix) for prefix in units.prefixes]
        parts: Ints = np.array(below, dtype=np.int64)[units.queues]
        # Cuts inside a queue: its rows at or after the cut belong to the next range.
        known = {prefix: number for number, prefix in enumerate(units.prefixes)}
        for prefix, offset in self.unit_edges:
            if prefix in known:
                parts += (units.queues == known[prefix]) & (units.queue_offset >= offset)
        return parts

    def index_parts(self, index: IndexRows) -> Ints:
        """The number of the range that each index row belongs to, counted from behind those of
        units."""
        parts = np.full(len(index.keys), self.unit_ranges, dtype=np.int64)
        for edge in self.index_edges:
            parts += _at_or_behind(index, edge)
        return parts


def _at_or_behind(index: IndexRows, edge: IndexKey) -> Bools:
    """Whether each row's key is at or after the edge. Compares only as many fields as needed."""
    prefix, length, key, time_ms, place = edge
    signs = np.array([(one > prefix) - (one < prefix) for one in index.prefixes], dtype=np.int64)
    found: Bools = signs[index.topics] > 0
    level = np.flatnonzero(signs[index.topics] == 0)
    # Length, words of the key, time and place: each only for rows that are equal so far.
    words = -(-length // WORD)
    limits = [length, *(Strings.of([key]).word(number)[0] for number in range(words))]
    for number, limit in enumerate([*limits, time_ms, place], -1):
        if number < 0:
            values: npt.NDArray[Any] = index.keys[level].lengths
        elif number < words:
            values = index.keys[level].word(number)
        else:
            values = (index.store_time_ms, index.physical_offset)[number - words][level]
        found[level[values > limit]] = True
        level = level[values == limit]
    found[level] = True
    return found


def whole_key(key: IndexKey) -> bytes:
    """The key as in kvcq.tables.keys.index_key."""
    prefix, length, message_key, time_ms, place = key
    parts = (prefix, length.to_bytes(4, "big"), b"\x01", message_key, b"\x01", pack_i64(time_ms))
    return b"".join((*parts, pack_i64(place)))


class Sample(NamedTuple):
    """Sampled records of the log, and the number of rows of each kind per byte of log."""

    unit_keys: list[UnitKey]
    index_keys: list[IndexKey]
    bytes_seen: int


def sample_log(layout: LogLayout, begin: int, end: int, liveness: Liveness) -> Sample:
    """Sample records at equal distances."""
    units: list[UnitKey] = []
    index: list[IndexKey] = []
    seen = 0
    step = max(1, (end - begin) // _PROBES)
    for segment in layout.segments:
        data = open_segment(segment.path)
        stop = min(end, segment.start + layout.segment_bytes)
        at = max(begin, segment.start)
        while at < stop:
            limit = min(stop, at + step)
            found = find_record(data, segment.start, at - segment.start, limit - segment.start)
            if found is not None:
                bound = limit - segment.start
                walked = walk(data, segment.start, found, bound, _PROBE_RECORDS)
                derived = derive(walked.block, liveness)
                units += _unit_keys(derived.units)
                index += _index_keys(derived.index_rows)
                seen += walked.next_position - found
            at = limit
    return Sample(sorted(units), sorted(index), seen)


def _unit_keys(rows: UnitRows) -> Iterator[UnitKey]:
    prefixes = [rows.prefixes[number] for number in rows.queues.tolist()]
    return zip(prefixes, rows.queue_offset.tolist(), strict=True)


def _index_keys(rows: IndexRows) -> Iterator[IndexKey]:
    prefixes = [rows.prefixes[number] for number in rows.topics.tolist()]
    numbers = (rows.store_time_ms.tolist(), rows.physical_offset.tolist())
    return zip(prefixes, rows.keys.lengths.tolist(), rows.keys.tolist(), *numbers, strict=True)


def plan_cuts(sample: Sample, log_bytes: int, rows_per_file: int, least: int) -> KeyCuts:
    """Cuts for files of about `rows_per_file` rows; at least `least` files if there are enough
    rows."""
    scale = log_bytes / sample.bytes_seen if sample.bytes_seen else 0.0
    unit_edges = _edges(sample.unit_keys, scale, rows_per_file, least)
    index_edges = _edges(sample.index_keys, scale, rows_per_file, least)
    return KeyCuts(tuple(unit_edges), tuple(index_edges))


def _edges(keys: list[_Key], scale: float, rows_per_file: int, least: int) -> list[_Key]:
    rows = len(keys) * scale
    files = max(1, round(rows / rows_per_file), least if rows > rows_per_file / 10 else 1)
    edges = {keys[len(keys) * part // files] for part in range(1, files)} if keys else set()
    return sorted(edges)
