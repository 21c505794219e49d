"""Units of file consume queues, in bulk: `<path>/<topic>/<queue id>/<20 digits>`.

Reads all units on disk, including those that the store considers beyond the end of a queue. Leaves
out zeros and blanks, and does not read holes of sparse files.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from migration.formats import (
    UNIT_SIZE,
    UnitArray,
    entries_in,
    parse_file_name,
    queues_in,
    unpack_units,
    valid_units,
)
from migration.spark.arrow import batch_of
from migration.spark.errors import QueueLayoutError
from store.log import data_ranges

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHUNK_UNITS = 65_536


class QueueFile(NamedTuple):
    topic: str
    queue_id: int
    path: str
    start: int  # queue offset of its first unit
    size: int  # bytes on disk, without holes


def list_files(directory: Path) -> list[QueueFile]:
    """All files of all queues, in name order.

    Skips everything that is not a queue: files at the top level (RocketMQ's RocksDB may be there),
    directories whose names are not numbers. Raises QueueLayoutError for an invalid queue file.
    """
    if not directory.is_dir():
        raise QueueLayoutError(f"{directory}: no such directory")
    found = []
    for topic, queue_id, queue in queues_in(directory):
        for path in entries_in(queue):
            start = parse_file_name(path.name)
            if start is None or start % UNIT_SIZE:
                raise QueueLayoutError(f"{path}: the name is not a queue file's")
            status = path.stat()
            size = min(status.st_blocks * 512, status.st_size)
            found.append(QueueFile(topic, queue_id, str(path), start // UNIT_SIZE, size))
    return found


def group_files(files: list[QueueFile], max_bytes: int) -> list[list[QueueFile]]:
    """Runs of files of about `max_bytes` each, or of one file."""
    groups: list[list[QueueFile]] = []
    size = 0
    for file in files:
        if not groups or size + file.size > max_bytes:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += max(file.size, 4096)  # opening a small file has a cost, too
    return groups


def read_units(
    file: QueueFile,
) -> Iterator[tuple[np.ndarray[tuple[int], np.dtype[np.int64]], UnitArray]]:
    """Yield queue offsets and valid units, in chunks."""
    with Path(file.path).open("rb") as opened:
        at = 0
        for begin, end in data_ranges(opened.fileno(), 0, os.fstat(opened.fileno()).st_size):
            at = max(at, begin - begin % UNIT_SIZE)
            while at < end:
                # Read whole units: one that begins in data may end in a hole.
                count = min(_CHUNK_UNITS, -(-(end - at) // UNIT_SIZE))
                units = unpack_units(os.pread(opened.fileno(), count * UNIT_SIZE, at))
                if not len(units):
                    break
                kept = np.flatnonzero(valid_units(units))
                if len(kept):
                    yield kept + (file.start + at // UNIT_SIZE), units[kept]
                at += len(units) * UNIT_SIZE


def file_batch(
    file: QueueFile,
    offsets: np.ndarray[tuple[int], np.dtype[np.int64]],
    units: UnitArray,
    schema: pa.Schema,
) -> pa.RecordBatch:
    """The columns of `schema` (see columns.CONSUMEQUEUE); files have no times."""
    count = len(units)
    own = {name: units[name] for name in units.dtype.names or ()}
    queue = {"topic": pa.repeat(file.topic, count), "queue_id": np.full(count, file.queue_id)}
    return batch_of(schema, count, own | queue | {"queue_offset": offsets})
