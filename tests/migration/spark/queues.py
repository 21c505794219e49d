"""The queues of a log, in both forms, made by the code that the broker runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq.engine.rocks import RocksEngine
from kvcq.engine.rocks.options import DERIVED
from kvcq.tables.dispatch_batch import build_batch
from migration.formats.unit import pack_units
from store.format.record import dispatch_request

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.log_writer import LogWriter

UNITS_PER_FILE = 64


def write_database(path: Path, writer: LogWriter) -> None:
    """What live dispatch of the whole log writes."""
    requests = [dispatch_request(row.record, 0) for row in writer.rows]
    engine = RocksEngine.open(path, DERIVED)
    try:
        engine.write(build_batch(requests, writer.end))
    finally:
        engine.close()


def write_files(path: Path, writer: LogWriter) -> None:
    """File queues of the whole log, each unit at its place."""
    for row in writer.rows:
        request = dispatch_request(row.record, 0)
        places = (
            [(request.topic, request.queue_id, request.queue_offset)] if request.in_queue else []
        )
        places += [(name, 0, offset) for name, offset in request.light_queues]
        unit = pack_units([request.physical_offset, request.record_size, request.tag_code])
        for topic, queue_id, offset in places:
            put_unit(path, topic, queue_id, offset, unit)


def put_unit(path: Path, topic: str, queue_id: int, offset: int, unit: bytes) -> None:
    """Write the bytes of one unit, in a file that is made if it is missing."""
    size = UNITS_PER_FILE * len(unit)
    start = offset * len(unit) // size * size
    file_path = path / topic / str(queue_id) / f"{start:020d}"
    file_path.parent.mkdir(parents=True, exist_ok=True)
    if not file_path.exists():
        file_path.write_bytes(bytes(size))
    with file_path.open("r+b") as file:
        file.seek(offset * len(unit) - start)
        file.write(unit)
