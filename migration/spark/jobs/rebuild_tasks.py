"""The work of the executors in a rebuild: log ranges in, sorted files out.

Between the two kinds of task no rows travel but packs of rows: all rows of one block of records
that go to one file are one Arrow message. Spark then moves a few large values, and the cost of a
row in the JVM, which is most of the cost of a shuffle, is gone.
"""

from __future__ import annotations

import pickle
import uuid
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kvcq.engine.rocks import DERIVED, write_sst
from kvcq.tables import INDEX, UNITS
from migration.columnar import (
    INDEX_ROWS,
    UNIT_ROWS,
    ReadOptions,
    derive,
    expiry_stamps,
    read_blocks,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    from kvcq.engine import Pair
    from migration.columnar import Ints, KeyCuts, Liveness, LogRange

PACKS = pa.schema([("part", pa.int32()), ("rows", pa.int64()), ("pack", pa.binary())])
PACKS_DDL = "part int, rows bigint, pack binary"
FILES = pa.schema(
    [
        ("path", pa.string()),
        ("family", pa.string()),
        ("rows", pa.int64()),
        ("first_key", pa.binary()),
        ("last_key", pa.binary()),
        ("bounds", pa.binary()),
    ]
)
FILES_DDL = (
    "path string, family string, rows bigint, first_key binary, last_key binary, bounds binary"
)
BOUNDS_ROWS = pa.schema(
    [("prefix", pa.binary()), ("physical_offset", pa.int64()), ("queue_offset", pa.int64())]
)

_FAMILIES = {family.name: family for family in DERIVED.families}
#: Rows that are Python objects at one time.
_WRITE_CHUNK = 65_536


class RebuildTask(NamedTuple):
    """What every task knows; travels to the executors."""

    liveness: Liveness
    cuts: KeyCuts
    options: ReadOptions
    directory: str  # where the files go; the same for all executors


# --- first kind of task -----------------------------------------------------------------------


def pack_ranges(task: RebuildTask, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Packs of rows from pickled log ranges (one binary column)."""
    for batch in batches:
        for pickled in batch.column(0).to_pylist():
            log_range: LogRange = pickle.loads(pickled)
            for block in read_blocks(log_range, task.options):
                rows = derive(block, task.liveness)
                yield from _packed(rows.units, task.cuts.unit_parts(rows.units))
                yield from _packed(rows.index, task.cuts.index_parts(rows.index))


def _packed(rows: pa.RecordBatch, parts: Ints) -> Iterator[pa.RecordBatch]:
    if not rows.num_rows:
        return
    order = np.argsort(parts, kind="stable")
    names, starts = np.unique(parts[order], return_index=True)
    ends = [*starts[1:].tolist(), len(order)]
    packs = []
    for start, end in zip(starts.tolist(), ends, strict=True):
        chosen = rows if end - start == len(order) else rows.take(pa.array(order[start:end]))
        packs.append(chosen.serialize().to_pybytes())
    counts = pa.array(np.diff([*starts.tolist(), len(order)]))
    columns = [pa.array(names.astype(np.int32)), counts, pa.array(packs, pa.binary())]
    yield pa.RecordBatch.from_arrays(columns, schema=PACKS)


# --- second kind ------------------------------------------------------------------------------


def write_files(task: RebuildTask, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One sorted file for each range of keys whose packs arrive here."""
    packs: dict[int, list[bytes]] = defaultdict(list)
    for batch in batches:
        pairs = zip(batch.column("part").to_pylist(), batch.column("pack").to_pylist(), strict=True)
        for part, pack in pairs:
            packs[part].append(pack)
    unit_parts = task.cuts.unit_ranges
    for part in sorted(packs):
        mine = packs.pop(part)
        # A task that is run again writes other names: nobody reads half a file.
        name = f"{part:05d}-{uuid.uuid4().hex}.sst"
        if part < unit_parts:
            yield _write_units(Path(task.directory) / f"units-{name}", _unpacked(mine, UNIT_ROWS))
        else:
            yield _write_index(Path(task.directory) / f"index-{name}", _unpacked(mine, INDEX_ROWS))


def _unpacked(packs: list[bytes], schema: pa.Schema) -> pa.Table:
    batches = [pa.ipc.read_record_batch(pa.py_buffer(pack), schema) for pack in packs]
    return pa.Table.from_batches(batches, schema).combine_chunks()


def _write_units(path: Path, rows: pa.Table) -> pa.RecordBatch:
    encoded = rows.column("prefix").combine_chunks().dictionary_encode()
    prefixes = encoded.dictionary.to_pylist()
    ranked = sorted(range(len(prefixes)), key=prefixes.__getitem__)
    rank_of = np.empty(len(ranked), dtype=np.int64)
    rank_of[ranked] = np.arange(len(ranked))
    rank = rank_of[np.asarray(encoded.indices, dtype=np.int64)]
    names = ("queue_offset", "physical_offset", "record_size", "tag_code", "store_time_ms")
    columns = {name: np.asarray(rows.column(name)) for name in names}
    order = np.lexsort((columns["physical_offset"], columns["queue_offset"], rank))
    rank = rank[order]
    columns = {name: values[order] for name, values in columns.items()}
    # Of several records for one place the last in the log wins, as with live dispatch.
    same = (rank[1:] == rank[:-1]) & (np.diff(columns["queue_offset"]) == 0)
    if same.any():
        kept = np.append(~same, True)
        rank = rank[kept]
        columns = {name: values[kept] for name, values in columns.items()}
    sorted_prefixes = [prefixes[index] for index in ranked]
    pairs = _unit_pairs(sorted_prefixes, rank, columns)
    written = write_sst(path, pairs, _FAMILIES[UNITS])
    assert written is not None
    bounds = _bounds(sorted_prefixes, rank, columns)
    return _file_row(path, UNITS, written.rows, written.first_key, written.last_key, bounds)


def _unit_pairs(
    prefixes: list[bytes], rank: Ints, columns: dict[str, npt.NDArray[np.int64]]
) -> Iterator[Pair]:
    """Rows in key order. Prefixes of one length are next to each other, for it comes first."""
    lengths = np.array([len(prefix) for prefix in prefixes])[rank]
    edges = np.flatnonzero(np.diff(lengths)) + 1
    runs = [0, *edges.tolist(), len(rank)]
    for run_start, run_end in pairwise(runs):
        length = int(lengths[run_start])
        first = int(rank[run_start])
        last = int(rank[run_end - 1])
        table = np.frombuffer(b"".join(prefixes[first : last + 1]), dtype=f"V{length}")
        for start in range(run_start, run_end, _WRITE_CHUNK):
            rows = slice(start, min(start + _WRITE_CHUNK, run_end))
            keys = np.empty(rows.stop - start, dtype=[("prefix", f"V{length}"), ("offset", ">i8")])
            keys["prefix"] = table[rank[rows] - first]
            keys["offset"] = columns["queue_offset"][rows]
            yield from zip(
                keys.view(f"V{length + 8}").tolist(), _unit_values(columns, rows), strict=True
            )


_VALUE = np.dtype(
    [
        ("physical_offset", ">i8"),
        ("record_size", ">i4"),
        ("tag_code", ">i8"),
        ("store_time_ms", ">i8"),
        ("stamp", "<i4"),
    ]
)


def _unit_values(columns: dict[str, npt.NDArray[np.int64]], rows: slice) -> list[bytes]:
    """As kvcq.values.pack_unit, in bulk."""
    values = np.empty(rows.stop - rows.start, dtype=_VALUE)
    for name in ("physical_offset", "record_size", "tag_code", "store_time_ms"):
        values[name] = columns[name][rows]
    values["stamp"] = expiry_stamps(columns["store_time_ms"][rows])
    packed: list[bytes] = values.view(f"V{_VALUE.itemsize}").tolist()
    return packed


def _bounds(
    prefixes: list[bytes], rank: Ints, columns: dict[str, npt.NDArray[np.int64]]
) -> pa.RecordBatch:
    """The unit of each queue that was dispatched last: the one that lies highest in the log."""
    starts = np.flatnonzero(np.diff(rank, prepend=-1))
    highest = np.maximum.reduceat(columns["physical_offset"], starts)
    counts = np.diff(np.append(starts, len(rank)))
    rows = np.flatnonzero(columns["physical_offset"] == np.repeat(highest, counts))
    names = pa.array([prefixes[index] for index in rank[rows].tolist()], pa.binary())
    places = pa.array(columns["physical_offset"][rows])
    offsets = pa.array(columns["queue_offset"][rows])
    return pa.RecordBatch.from_arrays([names, places, offsets], schema=BOUNDS_ROWS)


def _write_index(path: Path, rows: pa.Table) -> pa.RecordBatch:
    keys = rows.column("key").combine_chunks()
    keys = keys.take(pc.array_sort_indices(keys))
    written = write_sst(path, _index_pairs(keys), _FAMILIES[INDEX])
    assert written is not None
    return _file_row(path, INDEX, written.rows, written.first_key, written.last_key, None)


def _index_pairs(keys: pa.BinaryArray) -> Iterator[Pair]:
    for start in range(0, len(keys), _WRITE_CHUNK):
        chunk = keys.slice(start, _WRITE_CHUNK)
        bounds = np.frombuffer(chunk.buffers()[1], dtype=np.int32)
        bounds = bounds[chunk.offset : chunk.offset + len(chunk) + 1]
        data = chunk.buffers()[2][int(bounds[0]) : int(bounds[-1])].to_pybytes()
        ends = (bounds - bounds[0]).tolist()
        # The time stands 16 bytes before the end.
        times = np.ndarray(shape=(len(data) - 7,), dtype="V8", buffer=data, strides=(1,))[
            np.array(ends[1:]) - 16
        ].view(">i8")
        stamps = expiry_stamps(times.astype(np.int64)).astype("<i4").view("V4").tolist()
        slices = [data[begin:end] for begin, end in pairwise(ends)]
        yield from zip(slices, stamps, strict=True)


def _file_row(
    path: Path, family: str, rows: int, first: bytes, last: bytes, bounds: pa.RecordBatch | None
) -> pa.RecordBatch:
    packed = None if bounds is None else bounds.serialize().to_pybytes()
    row = dict(zip(FILES.names, (str(path), family, rows, first, last, packed), strict=True))
    return pa.RecordBatch.from_pylist([row], schema=FILES)
