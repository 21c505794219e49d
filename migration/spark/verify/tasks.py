"""The executors' work in a verification: units of any source, with the same columns."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from kvcq.tables import expiry_stamps, unpack_index_key
from migration.columnar import (
    LogRange,
    ReadOptions,
    Strings,
    derive_index,
    places_of,
    read_blocks,
    row_keys,
)
from migration.spark.arrow import batch_of, from_names
from migration.spark.columns import CONSUMEQUEUE
from migration.spark.queues import (
    KeyRange,
    QueueFile,
    file_batch,
    open_units,
    read_rows,
    read_units,
    row_batch,
)
from migration.spark.verify.digest import Digest, buckets_of_keys, buckets_of_units, queues_of
from migration.spark.verify.index_rows import IndexRange, read_index
from migration.spark.verify.key_rows import KeyRows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    from kvcq.tables import Hashes
    from migration.columnar import Liveness, RecordBlock

LOG, FILES, ROCKSDB = "log", "files", "rocksdb"

#: Units of one source, for the detailed comparison.
SIDE = CONSUMEQUEUE.insert(0, pa.field("source", pa.string()))

#: Index rows of one source.
KEY_SIDE = pa.schema(
    [
        ("source", pa.string()),
        ("topic", pa.string()),
        ("key", pa.string()),
        ("store_time_ms", pa.int64()),
        ("physical_offset", pa.int64()),
        ("expiry_stamp_s", pa.int64()),
    ]
)


class Piece(NamedTuple):
    """A part of one source that one task reads."""

    source: str
    part: LogRange | list[QueueFile] | KeyRange | IndexRange


class VerifyTask(NamedTuple):
    """What every task needs; sent to the executors."""

    liveness: Liveness
    options: ReadOptions
    database: str | None
    begin: int  # only units of records from here
    end: int  # to here, exclusive, are compared
    with_keys: bool  # whether keys are compared too


def digest_pieces(task: VerifyTask, pieces: Iterable[Piece]) -> Iterator[dict[str, Digest]]:
    """The digest of each source that the pieces belong to."""
    digests: dict[str, Digest] = {}
    for piece in pieces:
        digest = digests.setdefault(piece.source, Digest())
        for units, keys in _read(task, piece):
            if units is not None:
                digest.add_units(units)
                if piece.source == LOG and task.database is not None:
                    digest.ends.add(queues_of(units), units)
            if keys is not None:
                digest.add_keys(keys)
    yield digests


def join_digests(one: dict[str, Digest], other: dict[str, Digest]) -> dict[str, Digest]:
    """The digests of both sets of pieces."""
    for source, digest in other.items():
        if source in one:
            one[source].merge(digest)
        else:
            one[source] = digest
    return one


def rows_in_buckets(
    task: VerifyTask, buckets: npt.NDArray[np.int64], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Units in some buckets, from pickled pieces (one binary column)."""
    for piece in _unpickled(batches):
        for units, _ in _read(task, piece):
            if units is None:
                continue
            chosen = np.isin(buckets_of_units(units), buckets)
            if chosen.any():
                kept = units.filter(pa.array(chosen))
                source = pa.repeat(piece.source, kept.num_rows)
                yield pa.RecordBatch.from_arrays([source, *kept.columns], schema=SIDE)


def keys_in_buckets(
    task: VerifyTask, buckets: npt.NDArray[np.int64], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Index rows in some buckets, from pickled pieces (one binary column)."""
    for piece in _unpickled(batches):
        for _, keys in _read(task, piece):
            if keys is None:
                continue
            chosen = keys.where(np.isin(buckets_of_keys(keys), buckets))
            if len(chosen.keys):
                yield _key_batch(piece.source, chosen)


def _unpickled(batches: Iterable[pa.RecordBatch]) -> Iterator[Piece]:
    for batch in batches:
        yield from map(pickle.loads, batch.column(0).to_pylist())


def _key_batch(source: str, rows: KeyRows) -> pa.RecordBatch:
    stamps = rows.proper_stamps if rows.stamps is None else rows.stamps
    unpacked = [unpack_index_key(key) for key in rows.keys.tolist()]
    table = [(source, *key, stamp) for key, stamp in zip(unpacked, stamps.tolist(), strict=True)]
    columns = dict(zip(KEY_SIDE.names, zip(*table, strict=True), strict=True))
    return pa.RecordBatch.from_pydict(columns, schema=KEY_SIDE)


def ends_of_queues(
    task: VerifyTask, queues: Hashes, pieces: Iterable[Piece]
) -> Iterator[tuple[str, int, int, int]]:
    """Topic, queue id, physical and queue offset of the highest unit of each of these queues in the
    pieces."""
    highest: dict[tuple[str, int], tuple[int, int]] = {}
    for piece in pieces:
        for units, _ in _read(task, piece):
            if units is None:
                continue
            kept = units.filter(pa.array(np.isin(queues_of(units), queues)))
            names = ("topic", "queue_id", "physical_offset", "queue_offset")
            columns = (kept.column(name).to_pylist() for name in names)
            for topic, queue_id, place, offset in zip(*columns, strict=True):
                found = highest.get((topic, queue_id))
                if found is None or found[0] < place:
                    highest[topic, queue_id] = place, offset
    for (topic, queue_id), (place, offset) in highest.items():
        yield topic, queue_id, place, offset


def _read(task: VerifyTask, piece: Piece) -> Iterator[tuple[pa.RecordBatch | None, KeyRows | None]]:
    """Yield the piece's units, with the columns CONSUMEQUEUE, and index rows."""
    part = piece.part
    if isinstance(part, LogRange):
        for block in read_blocks(part, task.options):
            with_keys = task.with_keys and piece.source == LOG
            keys = None
            if with_keys:
                keys = KeyRows(Strings.of(row_keys(derive_index(block, task.liveness))))
            yield _inside(task, _derived_units(block, task.liveness)), keys
    elif isinstance(part, IndexRange):
        assert task.database is not None
        with open_units(Path(task.database)) as engine:
            for rows in read_index(engine, part):
                yield None, _kept_keys(task, rows)
    elif isinstance(part, KeyRange):
        assert task.database is not None
        with open_units(Path(task.database)) as engine:
            for pairs in read_rows(engine, part):
                yield _inside(task, row_batch(pairs, CONSUMEQUEUE)), None
    else:
        for file in part:
            for offsets, file_units in read_units(file):
                units = file_batch(file, offsets, file_units, CONSUMEQUEUE)
                yield _inside(task, units), None


def _derived_units(block: RecordBlock, liveness: Liveness) -> pa.RecordBatch:
    """The units of the block, with the columns CONSUMEQUEUE."""
    places = places_of(block, liveness)
    rows = places.rows
    names = ("physical_offset", "record_size", "tag_code", "store_time_ms")
    columns = {name: getattr(block, name)[rows] for name in names} | {
        "topic": from_names(places.names),
        "queue_id": places.queue_ids,
        "queue_offset": places.offsets,
        "expiry_stamp_s": expiry_stamps(block.store_time_ms[rows]),
    }
    return batch_of(CONSUMEQUEUE, len(rows), columns)


def _kept_keys(task: VerifyTask, rows: KeyRows) -> KeyRows:
    """The index rows of records in the compared part of the log."""
    return rows.where((rows.places >= task.begin) & (rows.places < task.end))


def _inside(task: VerifyTask, units: pa.RecordBatch) -> pa.RecordBatch | None:
    places = np.asarray(units.column("physical_offset"))
    inside = (places >= task.begin) & (places < task.end)
    if not inside.any():
        return None
    return units if inside.all() else units.filter(pa.array(inside))
