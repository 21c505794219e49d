"""Ingests sorted files from another program into the RocksDB side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from migration.fill import end_before
from migration.state import SideName
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from migration.sides import IngestingStore
    from migration.steps.migration import Migration


def ingest(
    on: Migration,
    files: Mapping[str, Sequence[Path]],
    dispatched_offset: int,
    *,
    start_offset: int = 0,
) -> bool:
    """Ingest sorted files, by family, made from the whole log in start_offset..dispatched_offset.

    Returns whether they were needed. They must not have rows of names deleted below
    `dispatched_offset`. Repeatable. Durable on return. Raises InvalidArgumentError,
    IllegalStepError.
    """
    for path in (each for paths in files.values() for each in paths):
        if not path.is_file():
            raise InvalidArgumentError("files", f"{path} is not a file on this machine")
    side = on.double.side(SideName.ROCKSDB)
    if side is None:
        raise on.refuse("ingest", "RocksDB is not in use")
    with side.filling:
        at = side.store.dispatched_offset
        if dispatched_offset <= at:
            return False
        if side.joined:
            raise on.refuse("ingest", "RocksDB has all of the log already")
        if start_offset > max(at, on.store.log.start_offset):
            raise InvalidArgumentError(
                "start_offset", f"the files begin at {start_offset}, RocksDB ends at {at}"
            )
        # Also not beyond what is dispatched: the state would count as that far.
        if dispatched_offset > min(on.store.flushed_offset, on.double.dispatched_offset):
            raise InvalidArgumentError(
                "dispatched_offset", f"{dispatched_offset} is beyond the durable log"
            )
        store: IngestingStore = side.store  # type: ignore[assignment] # RocksDB's is one
        end_before(store, dispatched_offset, on.store.applier.endings())
        store.ingest(files, dispatched_offset, move=False)
        return True
