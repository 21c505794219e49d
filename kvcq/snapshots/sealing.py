"""Seals a snapshot: writes its rows of state and ends of queues into separate files.

It reads the snapshot's copy, so nothing waits for it. Many rows are written by another process,
because Python runs one thread at a time.

python -m kvcq.snapshots.sealing DIRECTORY
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from kvcq.engine import pages
from kvcq.engine.rocks import DERIVED, RocksEngine, write_sst
from kvcq.errors import EngineFailedError
from kvcq.snapshots.snapshot import ENDS_FILE, STATE_FILE, Snapshot
from kvcq.tables import BOUNDS, STATE, is_end_of_queue
from store.base import fsync_directory, start_module
from store.errors import DiskFullError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcq.engine import KvEngine, Pair

#: Keys of the dispatch point, which a database built from the snapshot writes itself.
_NOT_SEALED = (b"p",)
#: Fewer bytes of rows, about 20,000 rows, are written by this process: another one takes half a
#: second of processor time before its first row.
_SMALL_BYTES = 1 << 20
#: With this code the other process ends on a full disk.
_FULL = 3


def seal(snapshot: Snapshot) -> None:
    """Write the snapshot's sealed files, durably. Repeatable.

    Raises EngineFailedError if the copy is damaged, DiskFullError, OSError, StoreFormatError.
    """
    if snapshot.is_sealed:
        return
    with closing(RocksEngine.open_read_only(snapshot.copy, DERIVED)) as engine:
        sizes = engine.statistics()
        if sizes[f"{STATE}.sst_bytes"] + sizes[f"{BOUNDS}.sst_bytes"] < _SMALL_BYTES:
            _write(engine, snapshot)
            return
    with start_module(
        "kvcq.snapshots.sealing",
        str(snapshot.path),
        stdin=subprocess.DEVNULL,
        low_priority=True,
    ) as process:
        code = process.wait()
    if code == _FULL:
        raise DiskFullError(f"no space to seal {snapshot.path}")
    if code:
        raise EngineFailedError(f"the process that seals {snapshot.path} failed")


def write_sealed(snapshot: Snapshot) -> None:
    """Write the files, and then the seal."""
    with closing(RocksEngine.open_read_only(snapshot.copy, DERIVED)) as engine:
        _write(engine, snapshot)


def _write(engine: KvEngine, snapshot: Snapshot) -> None:
    families = {family.name: family for family in DERIVED.families}
    counts: dict[str, int] = {}
    for name, family, rows in (
        (STATE_FILE, STATE, _state_rows(engine)),
        (ENDS_FILE, BOUNDS, _ends(engine)),
    ):
        written = write_sst(snapshot.path / name, rows, families[family])
        if written is not None:
            counts[name] = written.rows
    fsync_directory(snapshot.path)
    snapshot.seal(counts)


def _state_rows(engine: KvEngine) -> Iterator[Pair]:
    for rows in pages(engine, STATE):
        yield from (row for row in rows if not row[0].startswith(_NOT_SEALED))


def _ends(engine: KvEngine) -> Iterator[Pair]:
    for rows in pages(engine, BOUNDS):
        yield from (row for row in rows if is_end_of_queue(row[0]))


if __name__ == "__main__":
    try:
        write_sealed(Snapshot.read(Path(sys.argv[1])))
    except DiskFullError:
        sys.exit(_FULL)
