"""The work of the executors in a verification: units of any source, as one form of columns."""

from __future__ import annotations

import pickle
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from migration.routes import SideName
from migration.spark.columns import CONSUMEQUEUE
from migration.spark.decoder import ReadOptions, read_blocks
from migration.spark.derived_rows import unit_columns
from migration.spark.log_layout import LogRange
from migration.spark.unit_digest import UnitDigest, bucket_of, key_hashes
from migration.spark.unit_files import QueueFile, file_batch, read_units
from migration.spark.unit_rows import KeyRange, open_units, read_rows, row_batch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    from migration.spark.liveness import Liveness

LOG, FILES, ROCKSDB = "log", "files", "rocksdb"
#: With routes, not every unit of the log stands on every side: then the log is read once more, as
#: what the files hold.
LOG_FOR_FILES = "log for files"

#: Rows of one source, for the closer look.
SIDE = pa.schema([("source", pa.string()), *((field.name, field.type) for field in CONSUMEQUEUE)])
SIDE_DDL = (
    "source string, topic string, queue_id int, queue_offset bigint, physical_offset bigint,"
    " record_size int, tag_code bigint, store_time_ms bigint, expiry_stamp_s int"
)


class Piece(NamedTuple):
    """A part of one source that one task reads."""

    source: str
    part: LogRange | list[QueueFile] | KeyRange


class VerifyTask(NamedTuple):
    """What every task knows; travels to the executors."""

    liveness: Liveness
    options: ReadOptions
    database: str | None
    begin: int  # only units of records from here
    end: int  # to here, exclusive, are compared


def digest_pieces(task: VerifyTask, pieces: Iterable[Piece]) -> Iterator[dict[str, UnitDigest]]:
    """The digest of each source that the pieces belong to."""
    digests: dict[str, UnitDigest] = {}
    for piece in pieces:
        digest = digests.setdefault(piece.source, UnitDigest())
        for units in read_piece(task, piece):
            digest.add(_hashes(units), units)
    yield digests


def join_digests(one: dict[str, UnitDigest], other: dict[str, UnitDigest]) -> dict[str, UnitDigest]:
    """The digests of both sets of pieces."""
    return {
        source: reduce(UnitDigest.merge, [part[source] for part in (one, other) if source in part])
        for source in one.keys() | other.keys()
    }


def rows_in_buckets(
    task: VerifyTask, buckets: npt.NDArray[np.int64], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Units that fall into some buckets, from pickled pieces (one binary column)."""
    for batch in batches:
        for pickled in batch.column(0).to_pylist():
            piece: Piece = pickle.loads(pickled)
            for units in read_piece(task, piece):
                chosen = np.isin(bucket_of(_hashes(units)), buckets)
                if chosen.any():
                    kept = units.filter(pa.array(chosen))
                    source = pa.repeat(piece.source, kept.num_rows)
                    columns = [source, *kept.columns]
                    yield pa.RecordBatch.from_arrays(columns, schema=SIDE)


def read_piece(task: VerifyTask, piece: Piece) -> Iterator[pa.RecordBatch]:
    """Units of the piece that are to be compared, with the columns of CONSUMEQUEUE."""
    for units in _read(task, piece):
        places = np.asarray(units.column("physical_offset"))
        inside = (places >= task.begin) & (places < task.end)
        if inside.all():
            yield units
        elif inside.any():
            yield units.filter(pa.array(inside))


def _read(task: VerifyTask, piece: Piece) -> Iterator[pa.RecordBatch]:
    part = piece.part
    side = SideName.FILES if piece.source in (FILES, LOG_FOR_FILES) else SideName.ROCKSDB
    if isinstance(part, LogRange):
        for block in read_blocks(part, task.options):
            units = unit_columns(block, task.liveness, side, CONSUMEQUEUE)
            if units.num_rows:
                yield units
    elif isinstance(part, KeyRange):
        assert task.database is not None
        with open_units(Path(task.database)) as engine:
            for rows in read_rows(engine, part):
                yield _taken(task, side, row_batch(rows, CONSUMEQUEUE))
    else:
        for file in part:
            for offsets, file_units in read_units(file):
                yield _taken(task, side, file_batch(file, offsets, file_units, CONSUMEQUEUE))


def _taken(task: VerifyTask, side: SideName, units: pa.RecordBatch) -> pa.RecordBatch:
    """Without what another policy left behind."""
    kept = task.liveness.takes(side, units.column("topic"))
    return units if kept.all() else units.filter(pa.array(kept))


def _hashes(units: pa.RecordBatch) -> npt.NDArray[np.uint64]:
    names = ("topic", "queue_id", "queue_offset")
    return key_hashes(*(units.column(name) for name in names))
