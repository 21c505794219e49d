"""What RocketMQ's queues show about the log: where each queue begins, and which were deleted.

Reads the first units of requested queues from queue files, and for queues without files from
RocketMQ's own RocksDB. Read-only.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack, closing
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kvcq.consume_queue_store import KvConsumeQueueStore
from kvcq.engine import pages
from kvcq.engine.rocks import ROCKETMQ, RocksEngine
from kvcq.errors import KvcqError
from kvcq.inspect import is_at_place
from kvcq.tables import BOUNDS, DISPATCHED_KEY, UNITS, queue_offset_of, unit_prefix, unpack_i64
from migration.formats import UNIT_SIZE, files_in, queues_in, units_in, valid_units
from store.errors import StoreFormatError
from store.format import read_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from migration.plan.queue_runs import Run
    from store.consume_queue import DispatchRequest

logger = logging.getLogger(__name__)

#: Units of one read; the first one is nearly always enough.
_CHUNK_UNITS = 4096
_PAGE = 1000
#: Directories for RocketMQ's own RocksDB of queues: among the queue files, or separate. Source:
#: RocketMQ 5.5, useSeparateStorePathForRocksdbCQ.
OWN_ROCKSDB = ("consumequeue", "consumequeue_rocksdb")
_LAST_OFFSET = b"\xff" * 8


class Front(NamedTuple):
    """The first unit of a queue that refers to the log and is confirmed by its record."""

    queue_offset: int
    physical_offset: int


class QueueEvidence:
    """Reads one stopped store. Must be closed. Thread: one."""

    def __init__(
        self,
        root: Path,
        log_start: int,
        record_at: Callable[[int], DispatchRequest | None],
    ) -> None:
        """`record_at`: returns the record at a physical offset; None if there is no whole
        record."""
        self._queues = root / "consumequeue"
        self._log_start = log_start
        self._record_at = record_at
        self._closing = ExitStack()
        self._database = self._open_database(own_rocksdb(root))
        self._any_files = any(
            True for *_, queue in queues_in(self._queues) for _ in files_in(queue)
        )
        self._dispatched_ms = _dispatched_ms(root)
        self._database_end: int | None = None  # read on first use

    def close(self) -> None:
        self._closing.close()

    def front(self, topic: str, queue_id: int) -> Front | None:
        """Where the queue begins in the log; None if none of its units shows that."""
        places: Iterable[tuple[int, int]] = self._in_files(topic, queue_id)
        if self._database is not None:
            places = chain(places, self._in_database(topic, queue_id))
        for queue_offset, physical_offset in places:
            record = self._record_at(physical_offset)
            if record is not None and is_at_place(record, topic, queue_id, queue_offset):
                return Front(queue_offset, physical_offset)
        return None

    def exists(self, topic: str, queue_id: int) -> bool:
        """Whether the queue has files or rows, valid or not."""
        if any(True for _ in self._files_of(topic, queue_id)):
            return True
        if self._database is None:
            return False
        prefix = unit_prefix(topic, queue_id)
        return bool(self._database.scan(UNITS, prefix, prefix + _LAST_OFFSET, limit=1))

    def was_dispatched(self, run: Run) -> bool:
        """Whether the whole run had reached its queue durably before RocketMQ ended.

        If so, a missing queue was deleted. False if unknown: no queues exist at all, or RocketMQ
        was killed too soon afterwards.
        """
        if not self._any_files and self._database is None:
            return False
        if (
            self._any_files
            and self._dispatched_ms is not None
            and run.last_ms >= self._dispatched_ms
        ):
            return False
        return self._database is None or run.end <= self._end_of_database()

    # --- files -----------------------------------------------------------------------------

    def _files_of(self, topic: str, queue_id: int) -> Iterator[tuple[int, Path]]:
        if "/" in topic or "\0" in topic:  # cannot be the name of a directory
            return
        for start, path in files_in(self._queues / topic / str(queue_id)):
            if path.is_file():
                yield start, path

    def _in_files(self, topic: str, queue_id: int) -> Iterator[tuple[int, int]]:
        """Yield queue and physical offsets of the units that refer to the log, in order."""
        for start, path in self._files_of(topic, queue_id):
            try:
                for first, units in units_in(path, at_once=_CHUNK_UNITS):
                    offsets = units["physical_offset"]
                    live = np.flatnonzero(valid_units(units) & (offsets >= self._log_start))
                    for at in live.tolist():
                        yield start // UNIT_SIZE + first + at, int(offsets[at])
            except OSError as error:  # the check of files reports it, too
                logger.warning("%s cannot be used: %s", path, error)

    # --- RocketMQ's RocksDB ----------------------------------------------------------------

    def _open_database(self, path: Path | None) -> RocksEngine | None:
        if path is None:
            return None
        try:
            engine = RocksEngine.open_read_only(path, ROCKETMQ)
        except KvcqError as error:
            logger.warning("%s: RocketMQ's database cannot be used: %s", path, error)
            return None
        self._closing.callback(engine.close)
        return engine

    def _in_database(self, topic: str, queue_id: int) -> Iterator[tuple[int, int]]:
        assert self._database is not None
        prefix = unit_prefix(topic, queue_id)
        rows = pages(self._database, UNITS, prefix, prefix + _LAST_OFFSET, rows=_PAGE)
        for key, value in chain.from_iterable(rows):
            physical_offset = unpack_i64(value[:8])
            if physical_offset >= self._log_start:
                yield queue_offset_of(key), physical_offset

    def _end_of_database(self) -> int:
        """Physical offset below which all records were dispatched to RocketMQ's database; 0 if it
        cannot be read."""
        if self._database_end is None:
            assert self._database is not None
            units = KvConsumeQueueStore(self._database).last_units()
            last = max((physical_offset for *_, physical_offset in units), default=-1)
            record = self._record_at(last)
            self._database_end = last + (0 if record is None else record.record_size)
        return self._database_end


def own_rocksdb(root: Path) -> Path | None:
    """RocketMQ's own RocksDB of queues; None if there is none."""
    for name in OWN_ROCKSDB:
        if (root / name / "CURRENT").is_file():
            return root / name
    return None


def _dispatched_ms(root: Path) -> int | None:
    """Store time before which all records had reached the queues durably; None after a clean stop:
    all had."""
    if not (root / "abort").exists():
        return None
    try:
        checkpoint = read_checkpoint(root / "checkpoint")
    except StoreFormatError as error:
        logger.warning("%s", error)
        return 0
    return 0 if checkpoint is None else checkpoint.min_time_ms


def end_of_own_rocksdb(root: Path) -> int | None:
    """End of the record of the last unit in RocketMQ's own RocksDB; None without such a database.

    Raises EngineFailedError.
    """
    database = own_rocksdb(root)
    if database is None:
        return None
    with closing(RocksEngine.open_read_only(database, ROCKETMQ)) as engine:
        end = engine.get(BOUNDS, DISPATCHED_KEY)
    return 0 if end is None else unpack_i64(end)
