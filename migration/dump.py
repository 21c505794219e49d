"""What is in the files of a store, row by row: of this store or of RocketMQ's.

Reads only, and repairs nothing: damage is a row of its own. The store should be stopped; what a
running server has not flushed is not seen.
"""

from __future__ import annotations

from contextlib import closing
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kvcq.engine import LAST_KEY, pages
from kvcq.engine.rocks import DERIVED, ROCKETMQ, RocksEngine
from kvcq.errors import EngineFailedError
from kvcq.tables import (
    INDEX,
    UNITS,
    index_prefix,
    pack_i64,
    queue_offset_of,
    topic_range,
    unit_prefix,
    unpack_index_key,
    unpack_unit,
)
from migration.formats import (
    ENTRY_DTYPE,
    ENTRY_SIZE,
    HEADER,
    HEADER_SIZE,
    INDEX_DIRECTORY,
    QUEUE_DIRECTORY,
    UNIT_SIZE,
    index_key,
    key_hashes,
    parse_file_name,
    parse_index_name,
    unpack_units,
    valid_units,
)
from migration.plan import detect_layout, detect_segment_bytes
from migration.state import read_state
from store.errors import CorruptRecordError, StoreFormatError
from store.format import unpack_record
from store.log import Blank, Damage, Run, SegmentSet, walk
from store.store_dir import DirKind, inspect

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from migration.state import FileLayout
    from store.message import StoredMessage

FILES = "files"
ROCKSDB = "rocksdb"

_CHUNK_UNITS = 65_536


class LogRow(NamedTuple):
    """What is at one place of the commit log."""

    physical_offset: int
    size: int  # bytes; of damage: up to where the log goes on
    kind: str  # "record", "blank" (the rest of a segment), or "damage"
    message: StoredMessage | None  # of a record that can be decoded
    reason: str  # of damage, and of a record that cannot be decoded


class UnitRow(NamedTuple):
    """One unit of a consume queue. Times are None where the side does not keep them."""

    side: str
    queue_offset: int
    physical_offset: int
    record_size: int
    tag_code: int
    store_time_ms: int | None


class IndexRow(NamedTuple):
    """One entry of the key index. Files keep a hash of topic and key, the database both."""

    side: str
    physical_offset: int
    topic: str | None
    key: str | None
    store_time_ms: int | None
    key_hash: int | None
    place: str  # of files: name of the file and number of the entry


def dump_log(root: Path, start: int | None = None, end: int | None = None) -> Iterator[LogRow]:
    """The rows that begin from physical offset `start`, a record's beginning, to below `end`.

    Raises StoreFormatError when there is no log, or its files cannot be those of one.
    """
    segments = SegmentSet.load(root / "commitlog", _segment_bytes(root), read_only=True)
    with closing(segments):
        at = segments.first_offset if start is None else start
        for step in walk(segments, at, count=1):
            if end is not None and at >= end:
                return
            match step:
                case Run():
                    at = step.last_offset
                    yield _record_row(segments, at, step.next_offset - at)
                case Blank():
                    yield LogRow(at, step.next_offset - at, "blank", None, "")
                case Damage():
                    yield LogRow(at, step.next_offset - at, "damage", None, step.reason)
            at = step.next_offset


def _record_row(segments: SegmentSet, at: int, size: int) -> LogRow:
    segment = segments.find(at)
    assert segment is not None
    try:
        message = unpack_record(segment.read(at - segment.start_offset, size), verify=False)
    except CorruptRecordError as error:
        return LogRow(at, size, "record", None, error.reason)
    return LogRow(at, size, "record", message, "")


def queue_sides_of(root: Path) -> list[str]:
    """Where the store has consume queues. Raises StoreFormatError."""
    return [
        side for side, found in ((ROCKSDB, _database(root)), (FILES, _queue_files(root))) if found
    ]


def index_sides_of(root: Path) -> list[str]:
    """Where the store has a key index. Raises StoreFormatError."""
    ours = inspect(root)[0] is DirKind.OURS  # RocketMQ keeps no keys in its database
    files = root / INDEX_DIRECTORY
    return [
        side
        for side, found in (
            (ROCKSDB, ours and _database(root)),
            (FILES, files.is_dir() and any(files.iterdir())),
        )
        if found
    ]


def dump_queue(
    root: Path, side: str, topic: str, queue_id: int, start: int = 0
) -> Iterator[UnitRow]:
    """The units of one queue from queue offset `start` on; expired ones that are there as well.

    Zeros, blanks and end marks of a file are no units. Raises EngineFailedError,
    CorruptValueError.
    """
    if side == FILES:
        yield from _file_units(root / QUEUE_DIRECTORY / topic / str(queue_id), start)
        return
    prefix = unit_prefix(topic, queue_id)
    at, end = prefix + pack_i64(start), prefix + b"\xff" * 8
    with closing(_open(root)) as engine:
        for key, value in chain.from_iterable(pages(engine, UNITS, at, end)):
            unit = unpack_unit(value)
            yield UnitRow(
                ROCKSDB,
                queue_offset_of(key),
                unit.physical_offset,
                unit.record_size,
                unit.tag_code,
                unit.store_time_ms,
            )


def dump_index(
    root: Path,
    side: str,
    topic: str | None = None,
    key: str | None = None,
    layout: FileLayout | None = None,
) -> Iterator[IndexRow]:
    """Entries of the key index, all, of one topic, or of one key of a topic.

    Files know topic and key by a hash alone: they can be asked for a key, not for a topic.
    `layout`: sizes of index files that are not RocketMQ's defaults and not known to the store.
    Raises ValueError for what cannot be asked; StoreFormatError, EngineFailedError.
    """
    if key is not None and topic is None:
        raise ValueError("a key is one of a topic: give the topic as well")
    if side == FILES:
        if topic is not None and key is None:
            raise ValueError("index files keep no topics: give a key as well")
        wanted = None
        if topic is not None and key is not None:
            wanted = int(key_hashes([index_key(topic, key)])[0])
        yield from _file_entries(root, layout or _layout(root), topic, key, wanted)
        return
    start, end = b"", LAST_KEY
    if topic is not None and key is not None:
        start = index_prefix(topic, key)
        end = start + b"\xff" * 16
    elif topic is not None:
        start, end = topic_range(topic)
    with closing(_open(root)) as engine:
        for row_key, _ in chain.from_iterable(pages(engine, INDEX, start, end)):
            name, found, time_ms, offset = unpack_index_key(row_key)
            yield IndexRow(ROCKSDB, offset, name, found, time_ms, None, "")


# --- RocksDB -------------------------------------------------------------------------------


def _database(root: Path) -> Path | None:
    # RocketMQ keeps its database among the directories of its file queues.
    kind, _ = inspect(root)
    path = root / ("kvcq" if kind is DirKind.OURS else QUEUE_DIRECTORY)
    return path if (path / "CURRENT").is_file() else None


def _open(root: Path) -> RocksEngine:
    path = _database(root)
    if path is None:
        raise EngineFailedError(f"{root} has no database")
    ours = inspect(root)[0] is DirKind.OURS
    return RocksEngine.open_read_only(path, DERIVED if ours else ROCKETMQ)


# --- files ---------------------------------------------------------------------------------


def _queue_files(root: Path) -> Path | None:
    path = root / QUEUE_DIRECTORY
    if path.is_dir() and any(entry.is_dir() for entry in path.iterdir()):
        return path
    return None


def _file_units(directory: Path, start: int) -> Iterator[UnitRow]:
    if not directory.is_dir():
        return
    for path in sorted(directory.iterdir(), key=lambda path: path.name):
        begin = parse_file_name(path.name)
        if begin is None:
            continue
        first = begin // UNIT_SIZE
        size = path.stat().st_size
        with path.open("rb") as file:
            skipped = max(0, start - first) * UNIT_SIZE
            file.seek(min(skipped, size))
            at = first + file.tell() // UNIT_SIZE
            while data := file.read(_CHUNK_UNITS * UNIT_SIZE):
                units = unpack_units(data)
                for index in valid_units(units).nonzero()[0].tolist():
                    offset, record_size, tag_code = units[index].tolist()
                    yield UnitRow(FILES, at + index, offset, record_size, tag_code, None)
                at += len(units)


def _file_entries(
    root: Path, sizes: FileLayout, topic: str | None, key: str | None, wanted: int | None
) -> Iterator[IndexRow]:
    layout = sizes.index
    directory = root / INDEX_DIRECTORY
    names = sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []
    for name in names:
        if parse_index_name(name) is None:
            continue
        path = directory / name
        if path.stat().st_size != layout.file_bytes:
            reason = f"the file has {path.stat().st_size} bytes, not {layout.file_bytes}"
            raise StoreFormatError(path, reason)
        with path.open("rb") as file:
            begin_ms, _, _, _, _, next_entry = HEADER.unpack(file.read(HEADER_SIZE))
            file.seek(layout.entry_position(1))
            data = file.read(max(0, min(next_entry, layout.entries) - 1) * ENTRY_SIZE)
        entries = np.frombuffer(data, dtype=ENTRY_DTYPE, count=len(data) // ENTRY_SIZE)
        numbers = range(len(entries))
        if wanted is not None:
            numbers = (entries["key_hash"] == wanted).nonzero()[0].tolist()
        for number in numbers:
            key_hash, offset, seconds, _ = entries[number].tolist()
            time_ms = begin_ms + seconds * 1000
            yield IndexRow(FILES, offset, topic, key, time_ms, key_hash, f"{name}:{number + 1}")


def _layout(root: Path) -> FileLayout:
    state = read_state(root)
    return detect_layout(root) if state is None else state.layout


def _segment_bytes(root: Path) -> int:
    _, identity = inspect(root)
    return detect_segment_bytes(root) if identity is None else identity.segment_bytes
