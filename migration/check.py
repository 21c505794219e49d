"""Checks a stopped store with all its sides. Changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq.inspect import CheckResult, Finding, Kind, database_alone, inspect_store, open_database
from migration.files import FileSide, RecordLookup
from migration.formats import QUEUE_DIRECTORY
from migration.sides import file_options
from migration.state import STATE_FILE, Phase, SideName, read_state
from store.base import no_progress
from store.errors import StoreFormatError

if TYPE_CHECKING:
    from contextlib import ExitStack
    from pathlib import Path

    from kvcq.engine.rocks import RocksEngine
    from kvcq.inspect import OpenedStore, Side
    from migration.state import MigrationState
    from store.base import Progress


def check_store(root: Path, progress: Progress = no_progress) -> list[Finding]:
    """The findings of `examine_store`; [] for a clean store."""
    return examine_store(root, progress).findings


def examine_store(root: Path, progress: Progress = no_progress) -> CheckResult:
    """Check the store in `root` with all its sides; see `inspect_store`."""
    return inspect_store(root, progress, _sides)


def _sides(opened: OpenedStore, engine: RocksEngine | None, stack: ExitStack) -> list[Side]:
    add = opened.findings.add
    try:
        state = read_state(opened.directory.root)
    except StoreFormatError as error:
        add(Kind.IDENTITY, STATE_FILE, "a state that can be read", error.reason)
        state = None
    if state is None:
        return database_alone(opened, engine, stack)
    # A side that serves no reads may lag, because it is being filled.
    on_the_way = state.pending is not None or bool(state.stopped)
    sides: list[Side] = []
    if state.uses(SideName.FILES):
        files = _open_files(opened, stack, state, may_lag=on_the_way)
        sides += [] if files is None else [files]
    if engine is not None and state.uses(SideName.ROCKSDB):
        may_lag = on_the_way or state.phase.serving is not SideName.ROCKSDB
        database = open_database(opened, engine, may_lag=may_lag)
        sides += [] if database is None else [database]
    return sides


def _open_files(
    opened: OpenedStore, stack: ExitStack, state: MigrationState, *, may_lag: bool
) -> FileSide | None:
    """Queue files and index files as a side; None if there is nothing to compare."""
    directory = opened.directory
    if state.phase is Phase.ADOPTING:
        opened.findings.add(
            Kind.FILES_UNREAD,
            QUEUE_DIRECTORY,
            "files that agree with the log",
            "files that were not looked at",
            side=SideName.FILES.value,
            note="The store is being taken over: `kvcq migrate start` continues, and looks at all "
            "files again.",
        )
        return None
    if not directory.consumequeue.is_dir():
        if opened.segments.end_offset:
            opened.findings.add(
                Kind.MISSING,
                QUEUE_DIRECTORY,
                f"queue files: in state {state.phase.value} the store has some",
                "nothing",
                side=SideName.FILES.value,
            )
        return None
    records = RecordLookup(directory.commitlog, opened.segments.segment_bytes)
    stack.callback(records.close)
    may_lag = may_lag or state.phase.serving is not SideName.FILES
    return FileSide(
        opened,
        file_options(state.layout),
        records,
        may_lag=may_lag,
    )
