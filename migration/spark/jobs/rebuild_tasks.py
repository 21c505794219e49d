"""The executors' work in a rebuild: log ranges in, sorted files out.

Between the two kinds of tasks, rows are sent in packs: all rows of one block of records for one
file are one pickled value. So Spark moves a few large values. The cost per row in the JVM would be
most of the cost of a shuffle.
"""

from __future__ import annotations

import pickle
import uuid
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from kvcq.tables import INDEX, UNITS
from migration.columnar import derive, read_blocks, write_index, write_units

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kvcq.engine.rocks import SstFile
    from migration.columnar import (
        IndexRows,
        Ints,
        KeyCuts,
        Liveness,
        LogRange,
        ReadOptions,
        UnitRows,
    )

PACKS = pa.schema([("part", pa.int32()), ("rows", pa.int64()), ("pack", pa.binary())])
FILES = pa.schema([("file", pa.binary())])


class SortedFile(NamedTuple):
    """One file; its keys are disjoint from those of other files of its family."""

    family: str
    sst: SstFile
    #: For units, the last unit of each queue; see columnar.LastUnits.
    ends: list[tuple[bytes, int, int]]


class RebuildTask(NamedTuple):
    """What every task needs; sent to the executors."""

    liveness: Liveness
    cuts: KeyCuts
    options: ReadOptions
    directory: str  # directory for the files; the same path on all executors


def pack_ranges(task: RebuildTask, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The first kind of task: packs rows from pickled log ranges (one binary column)."""
    for batch in batches:
        for pickled in batch.column(0).to_pylist():
            log_range: LogRange = pickle.loads(pickled)
            for block in read_blocks(log_range, task.options):
                units, index, _ = derive(block, task.liveness)
                yield from _packs(units, task.cuts.unit_parts(units))
                yield from _packs(index, task.cuts.index_parts(index))


def _packs(rows: UnitRows | IndexRows, parts: Ints) -> Iterator[pa.RecordBatch]:
    if not len(parts):
        return
    order = np.argsort(parts, kind="stable")
    edges = np.flatnonzero(np.diff(parts[order])) + 1
    packs = [(int(parts[some[0]]), len(some), rows.take(some)) for some in np.split(order, edges)]
    names, counts, taken = zip(*packs, strict=True)
    columns = [pa.array(names, pa.int32()), pa.array(counts, pa.int64())]
    columns.append(pa.array([pickle.dumps(pack) for pack in taken], pa.binary()))
    yield pa.RecordBatch.from_arrays(columns, schema=PACKS)


def write_files(task: RebuildTask, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The second kind: writes one sorted file, pickled, for each range of keys whose packs arrive
    here."""
    packs: dict[int, list[bytes]] = defaultdict(list)
    for batch in batches:
        pairs = zip(batch.column("part").to_pylist(), batch.column("pack").to_pylist(), strict=True)
        for part, pack in pairs:
            packs[part].append(pack)
    for part in sorted(packs):
        rows = list(map(pickle.loads, packs.pop(part)))
        # A repeated task uses another name, so no incomplete file is ever used.
        name = f"{part:05d}-{uuid.uuid4().hex}.sst"
        if part < task.cuts.unit_ranges:
            units = write_units(Path(task.directory) / f"units-{name}", rows)
            assert units is not None
            made = SortedFile(UNITS, units.file, units.ends)
        else:
            index = write_index(Path(task.directory) / f"index-{name}", rows)
            assert index is not None
            made = SortedFile(INDEX, index, [])
        yield pa.RecordBatch.from_pydict({"file": [pickle.dumps(made)]}, schema=FILES)
