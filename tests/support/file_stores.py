"""Stores over files, beside the log that they are derived from."""

from __future__ import annotations

import shutil
from pathlib import Path

from migration.files.options import FileQueueOptions
from migration.files.store import FileQueueStore
from migration.formats.index import IndexLayout
from tests.support.dispatch_log import DispatchLog

OPTIONS = FileQueueOptions(
    units_per_file=8, index=IndexLayout(slots=5, entries=12), max_open_files=6, max_cached_queues=3
)
FOREVER = 1 << 62


def open_store(
    root: Path,
    log: DispatchLog,
    *,
    options: FileQueueOptions = OPTIONS,
) -> FileQueueStore:
    root.mkdir(exist_ok=True)
    return FileQueueStore(
        root,
        store_time_ms=log.store_time_ms,
        record_at=log.record_at,
        options=options,
    )


def catch_up(store: FileQueueStore, log: DispatchLog) -> None:
    store.dispatch(log.since(store.dispatched_offset), log.end)


def tree(root: Path) -> dict[str, bytes]:
    """Every file and directory with its content and time of change."""
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else b"directory"
        for path in sorted(root.rglob("*"))
    }


def filled(count: int = 40) -> DispatchLog:
    log = DispatchLog()
    for n in range(count):
        light = ("%LMQ%a", "%LMQ%b") if n % 3 == 0 else ()
        log.append(
            f"T{n % 2}",
            n % 3,
            time_ms=1_700_000_000_000 + 300 * n,
            size=100 + n,
            keys=(f"u{n}", f"k{n % 4}"),
            light=light,
        )
    return log


def hits(store: FileQueueStore, topic: str, key: str, *, limit: int = 100) -> list[int]:
    return [hit.physical_offset for hit in store.query_key(topic, key, 0, FOREVER, None, limit)]


def crash(source: Path, target: Path) -> Path:
    """What a killed process leaves: the files as they are, nothing closed."""
    return Path(shutil.copytree(source, target))
