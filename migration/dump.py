"""Dumps the files of a store, kvcq's or RocketMQ's, row by row.

Read-only. Damage is a row of its own. The store should be stopped: data that a running server has
not flushed is missing.
"""

from __future__ import annotations

from contextlib import closing
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

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
    HEADER,
    HEADER_SIZE,
    INDEX_DIRECTORY,
    QUEUE_DIRECTORY,
    UNIT_SIZE,
    entries_in,
    files_in,
    index_files_in,
    index_key,
    key_hashes,
    read_entries,
    units_in,
    valid_units,
)
from migration.plan import detect_layout, detect_segment_bytes
from migration.state import read_state
from store.errors import CorruptRecordError, StoreFormatError
from store.format import unpack_record
from store.log import Blank, Damage, Run, SegmentSet, walk
from store.store_dir import DirKind, inspect

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from migration.state import FileLayout
    from store.message import StoredMessage

FILES = "files"
ROCKSDB = "rocksdb"

_CHUNK_ENTRIES = 1 << 16


class LogRow(NamedTuple):
    """The content of one position of the commit log."""

    physical_offset: int
    size: int  # bytes; for damage, up to where the log continues
    kind: str  # "record", "blank" (the rest of a segment), or "damage"
    message: StoredMessage | None  # if the record can be decoded
    reason: str  # for damage, and for a record that cannot be decoded


class UnitRow(NamedTuple):
    """One unit of a consume queue. Times are None if the side does not store them."""

    side: str
    queue_offset: int
    physical_offset: int
    record_size: int
    tag_code: int
    store_time_ms: int | None


class IndexRow(NamedTuple):
    """One entry of the key index. Files store a hash of topic and key, the database stores both."""

    side: str
    physical_offset: int
    topic: str | None
    key: str | None
    store_time_ms: int | None
    key_hash: int | None
    place: str  # for files: the file's name and the number of the entry


class Dump:
    """The rows of one store directory. Its methods raise StoreFormatError, EngineFailedError."""

    def __init__(self, root: Path, layout: FileLayout | None = None) -> None:
        """`layout`: sizes of index files if they differ from RocketMQ's defaults, and the store has
        not recorded them. Raises StoreFormatError."""
        self._root = root
        self._given_layout = layout
        kind, self._identity = inspect(root)
        self._is_ours = kind is DirKind.OURS
        # RocketMQ keeps its database among the directories of its file queues.
        self._database = root / ("kvcq" if self._is_ours else QUEUE_DIRECTORY)
        self._has_database = (self._database / "CURRENT").is_file()

    # --- the log -----------------------------------------------------------------------------

    def log(self, start: int | None = None, end: int | None = None) -> Iterator[LogRow]:
        """Yield the rows from physical offset `start`, the beginning of a record, to below `end`.

        Raises StoreFormatError if there is no log, or its files are invalid.
        """
        root, identity = self._root, self._identity
        if not (root / "commitlog").is_dir():
            raise StoreFormatError(root, "is not a store: it has no commitlog/")
        size = detect_segment_bytes(root) if identity is None else identity.segment_bytes
        with closing(SegmentSet.load(root / "commitlog", size, read_only=True)) as segments:
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

    # --- queues ------------------------------------------------------------------------------

    def queue_sides(self) -> list[str]:
        """The sides that have consume queues."""
        files = any(entry.is_dir() for entry in entries_in(self._root / QUEUE_DIRECTORY))
        return _sides(rocksdb=self._has_database, files=files)

    def queue(self, side: str, topic: str, queue_id: int, start: int = 0) -> Iterator[UnitRow]:
        """Yield the units of one queue from queue offset `start` on, including expired ones.

        Zeros, blanks and end marks of a file are skipped. Raises CorruptValueError.
        """
        if side == FILES:
            yield from self._file_units(topic, queue_id, start)
            return
        prefix = unit_prefix(topic, queue_id)
        at, end = prefix + pack_i64(start), prefix + b"\xff" * 8
        with closing(self._open()) as engine:
            for key, value in chain.from_iterable(pages(engine, UNITS, at, end)):
                yield UnitRow(ROCKSDB, queue_offset_of(key), *unpack_unit(value))

    def _file_units(self, topic: str, queue_id: int, start: int) -> Iterator[UnitRow]:
        for begin, path in files_in(self._root / QUEUE_DIRECTORY / topic / str(queue_id)):
            first = begin // UNIT_SIZE
            for at, units in units_in(path, max(0, start - first)):
                for index in valid_units(units).nonzero()[0].tolist():
                    offset, record_size, tag_code = units[index].tolist()
                    place = first + at + index
                    yield UnitRow(FILES, place, offset, record_size, tag_code, None)

    # --- the key index -----------------------------------------------------------------------

    def index_sides(self) -> list[str]:
        """The sides that have a key index."""
        files = bool(entries_in(self._root / INDEX_DIRECTORY))
        # RocketMQ stores no keys in its database.
        return _sides(rocksdb=self._is_ours and self._has_database, files=files)

    def index(
        self, side: str, topic: str | None = None, key: str | None = None
    ) -> Iterator[IndexRow]:
        """Yield entries of the key index: all, of one topic, or of one key of a topic.

        Files only store a hash of topic and key, so they support a key, but not a topic. Raises
        ValueError for an unsupported query.
        """
        if key is not None and topic is None:
            raise ValueError("a key is one of a topic: give the topic as well")
        if side == FILES:
            if topic is not None and key is None:
                raise ValueError("index files keep no topics: give a key as well")
            yield from self._file_entries(topic, key)
            return
        start, end = b"", LAST_KEY
        if topic is not None and key is not None:
            start = index_prefix(topic, key)
            end = start + b"\xff" * 16
        elif topic is not None:
            start, end = topic_range(topic)
        with closing(self._open()) as engine:
            for row_key, _ in chain.from_iterable(pages(engine, INDEX, start, end)):
                name, found, time_ms, offset = unpack_index_key(row_key)
                yield IndexRow(ROCKSDB, offset, name, found, time_ms, None, "")

    def _file_entries(self, topic: str | None, key: str | None) -> Iterator[IndexRow]:
        wanted = None
        if topic is not None and key is not None:
            wanted = int(key_hashes([index_key(topic, key)])[0])
        layout = self._layout.index
        for path in index_files_in(self._root / INDEX_DIRECTORY):
            if (size := path.stat().st_size) != layout.file_bytes:
                raise StoreFormatError(path, f"the file has {size} bytes, not {layout.file_bytes}")
            with path.open("rb") as file:
                begin_ms, _, _, _, _, behind = HEADER.unpack(file.read(HEADER_SIZE))
                behind = min(behind, layout.entries)
                for first, entries in read_entries(file, layout, behind, _CHUNK_ENTRIES):
                    numbers: Sequence[int] = range(len(entries))
                    if wanted is not None:
                        numbers = (entries["key_hash"] == wanted).nonzero()[0].tolist()
                    for number in numbers:
                        key_hash, offset, seconds, _ = entries[number].tolist()
                        time_ms, place = begin_ms + seconds * 1000, f"{path.name}:{first + number}"
                        yield IndexRow(FILES, offset, topic, key, time_ms, key_hash, place)

    @cached_property
    def _layout(self) -> FileLayout:
        if self._given_layout is not None:
            return self._given_layout
        state = read_state(self._root)
        return detect_layout(self._root) if state is None else state.layout

    def _open(self) -> RocksEngine:
        if not self._has_database:
            raise EngineFailedError(f"{self._root} has no database")
        return RocksEngine.open_read_only(self._database, DERIVED if self._is_ours else ROCKETMQ)


def _sides(*, rocksdb: bool, files: bool) -> list[str]:
    return [side for side, found in ((ROCKSDB, rocksdb), (FILES, files)) if found]


def _record_row(segments: SegmentSet, at: int, size: int) -> LogRow:
    segment = segments.find(at)
    assert segment is not None
    try:
        message = unpack_record(segment.read(at - segment.start_offset, size), verify=False)
    except CorruptRecordError as error:
        return LogRow(at, size, "record", None, error.reason)
    return LogRow(at, size, "record", message, "")
