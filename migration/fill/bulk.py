"""Fills RocksDB with sorted files that another process writes: see columnar/bulk_worker.py.

For long histories. The process writes the next piece while the previous one is ingested, which
takes milliseconds. The ordinary backfill does the rest, or everything if the process cannot run.
"""

from __future__ import annotations

import json
import logging
import pickle
import shutil
import subprocess
import time
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from migration.columnar import BulkPlan, liveness_of
from migration.fill.pace import retry_while_side_busy
from migration.state import SideName
from store.base import DIRECTORY_MODE, lines_of, start_module
from store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import IO

    from migration.columnar import Liveness
    from migration.jobs import Job
    from migration.sides import DoubleQueueStore, IngestingStore, Side, SideStore
    from store.message_store import MessageStore

logger = logging.getLogger(__name__)

#: A smaller remainder of the log is left to the ordinary backfill.
LEAST_BYTES = 16 << 20
#: Log bytes of a piece. The memory of the process is about twice as much.
_PIECE_BYTES = 96 << 20
#: Number of L0 files in RocksDB above which the backfill waits for compaction. From
#: FamilyProfile.l0_slow on live writes would be rejected, which begin when the side is joined.
_L0_FILES = 12
#: If producers are nearly as fast as the process, the remainder hardly shrinks. After this many
#: short pieces it is dispatched while producers wait.
_SHORT_PIECES = 8
#: The remainder must shrink to this share of its size within this many seconds.
_SHRINKS = 0.9
_TREND_S = 3.0
_BRAKE_STEP = 0.2
_BRAKE_MOST = 0.8
_POLL_S = 0.05
_OUTPUT = "kvcq.bulk"
#: Not imported here: the process runs it as its main module.
WORKER = f"{__name__.removesuffix('.fill.bulk')}.columnar.bulk_worker"


class Trend:
    """Slows producers down step by step while the remainder does not shrink."""

    def __init__(self, double: DoubleQueueStore) -> None:
        self._double = double
        self._left: int | None = None
        self._looked_s = 0.0

    def look(self, left: int) -> None:
        now_s = time.monotonic()
        if self._left is not None and now_s - self._looked_s < _TREND_S:
            return
        if self._left is not None and left > _SHRINKS * self._left:
            self._double.brake = min(_BRAKE_MOST, self._double.brake + _BRAKE_STEP)
            logger.info("producers wait %.0f %% of their time", 100 * self._double.brake)
        self._left, self._looked_s = left, now_s


class BulkBackfill:
    """One run. Used by one job's thread, which owns the process."""

    def __init__(
        self, store: MessageStore, double: DoubleQueueStore, end: Callable[[], int], job: Job
    ) -> None:
        """`end`: returns the end of the log that is dispatched and durable."""
        self._store = store
        self._double = double
        self._end = end
        self._job = job
        self._trend = Trend(double)
        self._short = 0  # pieces requested when little was left
        # Absolute: the process has another working directory.
        self._root = store.config.root.absolute()
        self._output = self._root / _OUTPUT

    def run(self, side: Side) -> None:
        """Fill the side with nearly all of the log, if the process can run. Raises
        JobCancelledError, and what ingesting files raises."""
        if side.name is not SideName.ROCKSDB or self._left(side) < LEAST_BYTES:
            return
        shutil.rmtree(self._output, ignore_errors=True)
        self._output.mkdir(DIRECTORY_MODE)
        self._short = 0
        try:
            while self._run_process(side):
                pass
        finally:
            self._double.brake = 0.0
            shutil.rmtree(self._output, ignore_errors=True)

    def _left(self, side: Side, known_end: float = inf) -> int:
        start = max(side.store.dispatched_offset, self._store.log.start_offset)
        return int(min(self._end(), known_end)) - start

    def _goes_on(self, left: int) -> bool:
        return left >= LEAST_BYTES and self._short < _SHORT_PIECES

    def _run_process(self, side: Side) -> bool:
        """Ingest pieces of the log that was dispatched when the process started. It only knows the
        topics of that time. Returns whether another run is needed for the rest."""
        known_end = self._end()  # before the plan, so that the plan has all topics below
        endings = self._store.applier.endings()
        start = max(side.store.dispatched_offset, self._store.log.start_offset)
        plan = self._plan(start, liveness_of(self._store.tables, endings))
        process = start_module(WORKER, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            feed = cast("IO[bytes]", process.stdin)
            answers = lines_of(cast("IO[bytes]", process.stdout), _POLL_S)
            pickle.dump(plan, feed)
            waiting = taken = 0
            while self._goes_on(left := self._left(side, known_end)) or waiting:
                # Two pieces at a time: one is written while the other is ingested. Not if little is
                # left, because a piece ends where the log ended when it was requested.
                self._short += left < _PIECE_BYTES
                self._trend.look(self._left(side))
                while waiting < (2 if left >= _PIECE_BYTES else 1) and left >= LEAST_BYTES:
                    feed.write(b"%d\n" % min(self._end(), known_end))
                    feed.flush()
                    waiting += 1
                answer = self._answer(answers)
                if answer is None:
                    logger.error("the process of the backfill ended with %s", process.wait())
                    return False
                waiting -= 1
                # Compare ends, because a piece may have no rows, such as one of a deleted topic.
                if answer["end"] > side.store.dispatched_offset:
                    taken += 1
                    self._take_in(side, answer, endings)
            return bool(taken) and self._goes_on(self._left(side))
        except OSError:
            logger.exception("the process of the backfill ended; the backfill continues without it")
            return False
        finally:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):  # the process was gone before its input was closed
                    cast("IO[bytes]", pipe).close()

    def _plan(self, start: int, liveness: Liveness) -> BulkPlan:
        config = self._store.config
        return BulkPlan(
            self._root / "commitlog",
            config.segment_bytes,
            start,
            _PIECE_BYTES,
            self._output,
            liveness,
            config.skip_damaged_records,
        )

    def _answer(self, lines: Iterator[bytes | None]) -> dict[str, Any] | None:
        """The next answer; None if the process ended instead. Raises JobCancelledError."""
        for line in lines:
            if line is not None:
                answer: dict[str, Any] = json.loads(line)
                return answer
            self._job.check()
        return None

    def _take_in(self, side: Side, answer: dict[str, Any], endings: Mapping[str, int]) -> None:
        """Ingest the files into the database. Raises what the database raises."""
        files = {name: [Path(each) for each in paths] for name, paths in answer["files"].items()}
        end = answer["end"]
        while side.store.statistics().get("default.l0_files", 0) > _L0_FILES:
            self._job.pause(_POLL_S)
        with side.filling:
            retry_while_side_busy(self._job, lambda: end_before(side.store, end, endings))
            store = cast("IngestingStore", side.store)
            store.ingest(files, end, move=True)
        self._double.hold_log(side.name, end)
        self._job.report(end, self._end())
        self._job.count(rows=answer["records"])


def end_before(store: SideStore, end: int, endings: Mapping[str, int]) -> None:
    """Delete rows of names that ended below `end`. Must be called before files of the log up to
    `end` are ingested. Repeatable. Raises StoreBusyError."""
    begin = store.dispatched_offset
    for name, at in endings.items():
        if begin <= at < end:
            store.delete_topic(name, at)


def remove_leftovers(root: Path) -> None:
    """Remove files that a crash left. Repeatable. Raises StoreError if they cannot be removed."""
    try:
        shutil.rmtree(root / _OUTPUT)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"{root / _OUTPUT} cannot be removed: {error}") from error
