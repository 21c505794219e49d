"""Where to cut the key space, so that each task writes one sorted file of its own.

Spark's own range partitioning reads everything twice. A few thousand records from all over the log
say as well where the keys lie, in milliseconds; a bad cut costs balance, never rightness.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from migration.columnar.derived_rows import derive
from migration.columnar.log_layout import open_segment
from migration.columnar.walk import find_record, walk

if TYPE_CHECKING:
    from migration.columnar.derived_rows import DerivedRows
    from migration.columnar.gather import Ints
    from migration.columnar.liveness import Liveness
    from migration.columnar.log_layout import LogLayout

#: Prefix of a queue's unit keys, and a queue offset.
UnitKey = tuple[bytes, int]
_Key = TypeVar("_Key", bytes, UnitKey)

_PROBES = 96
_PROBE_RECORDS = 256


@dataclass(frozen=True)
class KeyCuts:
    """Inner edges of the ranges: units as (prefix, queue offset), index as whole keys. Rising."""

    unit_edges: tuple[UnitKey, ...]
    index_edges: tuple[bytes, ...]

    @property
    def unit_ranges(self) -> int:
        return len(self.unit_edges) + 1

    @property
    def ranges(self) -> int:
        """Ranges of both families; units come first."""
        return self.unit_ranges + len(self.index_edges) + 1

    def unit_parts(self, units: pa.RecordBatch) -> Ints:
        """The range that each unit lies in."""
        offsets = np.asarray(units.column("queue_offset"))
        encoded = units.column("prefix").dictionary_encode()
        edges = [prefix for prefix, _ in self.unit_edges]
        prefixes = encoded.dictionary.to_pylist()
        below = np.array([bisect_left(edges, prefix) for prefix in prefixes], dtype=np.int64)
        codes = np.asarray(encoded.indices, dtype=np.int64)
        parts: Ints = below[codes] if len(codes) else codes
        # Cuts inside a queue: its rows at or behind the cut are one range further on.
        known = {prefix: code for code, prefix in enumerate(prefixes)}
        for prefix, offset in self.unit_edges:
            if prefix in known:
                parts += (codes == known[prefix]) & (offsets >= offset)
        return parts

    def index_parts(self, index: pa.RecordBatch) -> Ints:
        """The range that each index row lies in, counted on from the ranges of the units."""
        keys = index.column("key")
        parts = np.full(len(keys), self.unit_ranges, dtype=np.int64)
        for edge in self.index_edges:
            parts += np.asarray(pc.greater_equal(keys, pa.scalar(edge, pa.binary())))
        return parts


class Sample(NamedTuple):
    """Records from all over the log, and how many there are of each kind for each byte."""

    unit_keys: list[UnitKey]
    index_keys: list[bytes]
    bytes_seen: int


def sample_log(layout: LogLayout, begin: int, end: int, liveness: Liveness) -> Sample:
    """Looks at some records at even distances."""
    units: list[UnitKey] = []
    index: list[bytes] = []
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
                rows: DerivedRows = derive(walked.block, liveness)
                offsets = rows.units.column("queue_offset").to_pylist()
                units += zip(rows.units.column("prefix").to_pylist(), offsets, strict=True)
                index += rows.index.column("key").to_pylist()
                seen += walked.next_position - found
            at = limit
    return Sample(sorted(units), sorted(index), seen)


def plan_cuts(sample: Sample, log_bytes: int, rows_per_file: int, least: int) -> KeyCuts:
    """Cuts for files of about `rows_per_file` rows, at least `least` files where rows are many."""
    scale = log_bytes / sample.bytes_seen if sample.bytes_seen else 0.0
    unit_edges = _edges(sample.unit_keys, scale, rows_per_file, least)
    index_edges = _edges(sample.index_keys, scale, rows_per_file, least)
    return KeyCuts(tuple(unit_edges), tuple(index_edges))


def _edges(keys: list[_Key], scale: float, rows_per_file: int, least: int) -> list[_Key]:
    rows = len(keys) * scale
    files = max(1, round(rows / rows_per_file), least if rows > rows_per_file / 10 else 1)
    edges = {keys[len(keys) * part // files] for part in range(1, files)} if keys else set()
    return sorted(edges)
