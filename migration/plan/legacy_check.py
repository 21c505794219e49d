"""Looks through the derived files of a legacy store for faults. Reads only, and streams.

Everything found is derived data, so every fault has the same cure: derive it again from the
log. What matters is that it is found, and said with file and position, before anything is done.
Memory: one chunk of one file at a time, and nothing for each queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from migration.formats import (
    UNIT_SIZE,
    UNITS_PER_FILE,
    IndexLayout,
    parse_file_name,
    parse_index_name,
    parse_queue_id,
)
from migration.plan.legacy_findings import Fault, Finding, Remedy
from migration.plan.legacy_index_check import check_index_file, first_offset_of
from migration.plan.legacy_queue_check import QueueCheck

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from migration.plan.legacy_index_check import TagEntries
    from store.consume_queue import DispatchRequest


def check_legacy(
    root: Path,
    *,
    log_start: int,
    log_end: int,
    record_at: Callable[[int], DispatchRequest | None] | None = None,
    log_bounds: Mapping[tuple[str, int], tuple[int, int]] | None = None,
    file_bytes: int = UNITS_PER_FILE * UNIT_SIZE,
    layout: IndexLayout | None = None,
    progress: Callable[[str, float], None] | None = None,
    damaged_from: int | None = None,
    tags: TagEntries | None = None,
) -> Iterator[Finding]:
    """Faults of `consumequeue/` and `index/` below `root`, in the order of their files.

    `record_at` gives the record at a physical offset; with it every live unit and index entry
    is held against its record. `log_bounds` gives the queue offsets [first, end) that the log
    has of each queue; with it a queue that is missing, starts late or ends early is found.
    `damaged_from` is where the log is known to be damaged, though it goes on: what cannot be read
    there is no fault of a derived file. `tags` is told of the tags in the index. `progress` is
    called with a step and how much of all is done, 0 to 1.
    """
    check = _Check(root, log_start, log_end, record_at, progress or _silent, damaged_from, tags)
    yield from check.kinds_not_read()
    yield from check.queues(file_bytes, log_bounds or {})
    yield from check.index(layout or IndexLayout())
    check.progress("done", 1.0)


def log_bounds_of_directory(commit_log: Path) -> tuple[int, int]:
    """Start, and an upper bound of the end, of a commit log, by the names of its segments."""
    segments = [
        path for path in sorted(commit_log.iterdir()) if parse_file_name(path.name) is not None
    ]
    if not segments:
        return 0, 0
    return int(segments[0].name), int(segments[-1].name) + segments[-1].stat().st_size


#: So many records between two index files are looked at for keys. Few records have none.
_GAP_RECORDS = 10_000

#: Source: RocketMQ 5, StorePathConfigHelper.
_BATCH_QUEUES = "batchconsumequeue"
_QUEUE_EXTENSIONS = "consumequeue_ext"


class _Check:
    def __init__(
        self,
        root: Path,
        log_start: int,
        log_end: int,
        record_at: Callable[[int], DispatchRequest | None] | None,
        progress: Callable[[str, float], None],
        damaged_from: int | None,
        tags: TagEntries | None,
    ) -> None:
        self._tags = tags
        self._root = root
        self._log_start = log_start
        self._log_end = log_end
        self._record_at = record_at
        self.progress = progress
        self._damaged_from = damaged_from
        self._last_queued = -1  # physical offset of the last live unit seen

    def kinds_not_read(self) -> Iterator[Finding]:
        """Queue files of RocketMQ's that nothing here reads; one finding for each directory."""
        for name, detail, remedy in (
            (
                _BATCH_QUEUES,
                "batch consume queue (queue.type=BatchCQ): one unit stands for many offsets. The "
                "store can be taken over when its topics are deleted in RocketMQ, and their files "
                "are gone",
                Remedy.REFUSE,
            ),
            (
                _QUEUE_EXTENSIONS,
                "extension of a consume queue (enableConsumeQueueExt): tag codes are taken from "
                "the log; bit maps of filters are lost",
                Remedy.IGNORE,
            ),
        ):
            base = self._root / name
            for topic in _entries(base):
                for directory in _entries(topic) or [topic]:
                    count = len(_entries(directory))
                    if count or not directory.is_dir():
                        yield Finding(
                            directory, 0, Fault.NOT_READ, detail, remedy, topic.name, count=count
                        )

    # --- queues ----------------------------------------------------------------------------

    def queues(
        self, file_bytes: int, log_bounds: Mapping[tuple[str, int], tuple[int, int]]
    ) -> Iterator[Finding]:
        base = self._root / "consumequeue"
        topics = _entries(base)
        seen = set()
        for done, topic in enumerate(topics):
            self.progress("consume queues", done / len(topics))
            if not topic.is_dir():
                yield Finding(topic, 0, Fault.FOREIGN, "no directory of a topic", Remedy.IGNORE)
                continue
            for directory in _entries(topic):
                queue_id = parse_queue_id(directory.name) if directory.is_dir() else None
                if queue_id is None:
                    detail = "no directory of a queue"
                    yield Finding(directory, 0, Fault.FOREIGN, detail, Remedy.IGNORE, topic.name)
                    continue
                name = (topic.name, queue_id)
                seen.add(name)
                check = QueueCheck(
                    directory,
                    *name,
                    file_bytes=file_bytes,
                    log_start=self._log_start,
                    log_end=self._log_end,
                    record_at=self._record_at,
                    damaged_from=self._damaged_from,
                )
                yield from check.run(log_bounds.get(name))
                self._last_queued = max(self._last_queued, check.last_live)
        for (topic_name, queue_id), (first, end) in sorted(log_bounds.items()):
            if first < end and (topic_name, queue_id) not in seen:
                path = base / topic_name / str(queue_id)
                detail = f"the log has its offsets {first} to {end - 1}"
                yield Finding(
                    path,
                    0,
                    Fault.MISSING_QUEUE,
                    detail,
                    Remedy.REBUILD_QUEUE,
                    topic_name,
                    queue_id,
                    first,
                    end - first,
                )

    # --- index -----------------------------------------------------------------------------

    def index(self, layout: IndexLayout) -> Iterator[Finding]:
        paths = _entries(self._root / "index")
        last = -1
        for done, path in enumerate(paths):
            self.progress("index files", done / len(paths))
            if not path.is_file() or parse_index_name(path.name) is None:
                yield Finding(path, 0, Fault.FOREIGN, "not named like an index file", Remedy.IGNORE)
                continue
            begin = first_offset_of(path)
            if begin is not None:
                yield from self._index_gap(path, last, begin)
            last = yield from check_index_file(
                path,
                layout,
                after=last,
                log_start=self._log_start,
                log_end=self._log_end,
                record_at=self._record_at,
                damaged_from=self._damaged_from,
                tags=self._tags,
            )
        if self._record_at is None or self._last_queued <= last:
            return
        record = self._record_at(self._last_queued)
        if record is not None and record.keys:
            # The original deletes its newest index file after a crash (H22).
            path = paths[-1] if paths else self._root / "index"
            detail = f"nothing above physical offset {last} is indexed"
            yield Finding(path, 0, Fault.ENDS_EARLY, detail, Remedy.REBUILD_INDEX, record.topic)

    def _index_gap(self, path: Path, last: int, begin: int) -> Iterator[Finding]:
        """A record with keys behind the last one of the file before, and before this file's."""
        if self._record_at is None:
            return
        at = self._log_start
        if last >= at:
            record = self._record_at(last)
            if record is None:
                return
            at = last + record.record_size
        for _ in range(_GAP_RECORDS):
            record = self._record_at(at) if at < begin else None
            if record is None:
                return
            if record.keys:
                detail = f"the record at {at} has keys, and is in no file before this one"
                yield Finding(path, 0, Fault.MISSING, detail, Remedy.REBUILD_INDEX, record.topic)
                return
            at += record.record_size


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _silent(step: str, done: float) -> None:
    """Progress for nobody."""
