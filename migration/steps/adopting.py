"""Takes over a RocketMQ directory, which becomes a kvcq store in state FILES.

Log, queue files and index files stay unchanged, except for queues and index files with faults,
which are rebuilt from the log. Topics and committed offsets are imported.

Repeatable: migration.json says ADOPTING before anything else is written, and FILES when everything
is done. In between only `kvcq migrate start` opens the directory.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, closing
from pathlib import PurePath
from typing import TYPE_CHECKING

from kvcq.consume_queue_store import KvConsumeQueueStore
from kvcq.engine.rocks import ROCKETMQ, RocksEngine
from kvcq.inspect import Remedy
from migration.errors import LogDamageError
from migration.files import note_whole
from migration.formats import INDEX_DIRECTORY, index_files_in
from migration.plan import (
    Inventory,
    inventory_for_start,
    own_rocksdb,
    refuse_other_layouts,
    segment_files,
)
from migration.sides import ends_below, open_files
from migration.state import STATE_FILE, MigrationState, Phase, read_state, write_state
from migration.steps.first_state import make_state
from store.base import SystemClock, make_directory, no_progress
from store.errors import StoreFormatError, StoreLockedError
from store.format import Checkpoint, write_checkpoint
from store.log import write_falls
from store.store_dir import DirKind, StoreDir, inspect

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kvcq.inspect import Finding
    from migration.sides import FileSideStore
    from migration.state import FileLayout
    from store.base import Clock, Progress

#: Most skipped files that are named.
_NAMED = 5


def adopt(
    root: Path,
    *,
    layout: FileLayout | None = None,
    progress: Progress = no_progress,
    tell: Callable[[str], None] | None = None,
    reclaim_unexpired: bool | None = None,
) -> MigrationState | None:
    """Take over the store in `root`, to state FILES. Repeatable; does nothing in a later state.

    `tell` is called with a line for everything that was rebuilt or skipped. `reclaim_unexpired`:
    whether the broker deleted unexpired messages when its disk was full; None: unknown. Returns
    None for a kvcq store without a migration. Raises StoreFormatError if the directory is not a
    store, LogDamageError, StoreLockedError while a broker has it open. Durable on return.
    """
    state = read_state(root)
    kind, _ = inspect(root)
    if state is None and kind is DirKind.OURS:
        return None
    if state is not None and state.phase is not Phase.ADOPTING:
        return state
    refuse_other_layouts(root)
    if state is None and kind is not DirKind.ROCKETMQ:
        raise StoreFormatError(
            root, "is not a store that RocketMQ wrote: there is nothing to take over"
        )
    clock = SystemClock()
    inventory = inventory_for_start(root, layout, progress)
    if inventory.refusals:
        kind_of_error = StoreFormatError if inventory.log.goes_on_at is None else LogDamageError
        raise kind_of_error(root, "; ".join(inventory.refusals) + ". Nothing was changed")
    if reclaim_unexpired is None and state is not None:
        reclaim_unexpired = state.reclaim_unexpired
    state = MigrationState(
        Phase.ADOPTING,
        reclaim_unexpired=reclaim_unexpired,
        layout=inventory.layout,
        config=inventory.config.sources,
    ).moved(clock.now_ms(), "taking over a store of RocketMQ's")
    fresh = not (root / STATE_FILE).exists()
    write_state(root, state)
    with ExitStack() as held:
        try:
            directory = StoreDir.open(root, inventory.segment_bytes, clock, adopt=True)
        except StoreLockedError:
            if fresh:
                (root / STATE_FILE).unlink()
            raise
        held.callback(directory.close)
        _make_log_durable(directory, inventory, progress)
        # Must exist in state FILES, even if all queues will be built from the log.
        make_directory(directory.consumequeue)
        _mend(directory, inventory, clock, progress)
        _seed_expired(directory, inventory, clock, progress)
        if inventory.files_are_whole:
            os.sync()  # the broker does not fsync units and entries
            note_whole(root, inventory.log.end, indexed=_has_index(root))
        progress("topics and groups", 0.0)
        write_falls(directory.notes, inventory.log.times.found)
        make_state(directory, inventory, clock)
        progress("topics and groups", 1.0)
        made, passed_over = _what_was_done(inventory)
        event = f"taken over; rebuilt from the log: {len(made)} queues or indexes"
        state = state.moved(clock.now_ms(), event, phase=Phase.FILES, inherits=inventory.log.end)
        write_state(root, state)
        if tell is not None:
            for line in (
                *_config_told(inventory),
                *_read_only_told(inventory),
                *_held_back_told(inventory),
                *made,
                *passed_over,
                *_on_a_full_disk(state),
            ):
                tell(line)
        return state


def _on_a_full_disk(state: MigrationState) -> list[str]:
    """Lines about behaviour on a full disk that an operator of RocketMQ may not expect."""
    if state.reclaim_unexpired is not None:
        return []
    return [
        "on a full disk unexpired messages are kept, and puts are rejected; RocketMQ deletes the "
        "oldest unless cleanFileForciblyEnable is false, as does store.reclaim_unexpired=true"
    ]


def _what_was_done(inventory: Inventory) -> tuple[list[str], list[str]]:
    """Lines about rebuilt queues and index, each with its first fault, and about skipped files."""
    made: dict[str, tuple[Finding, int]] = {}
    passed_over: dict[tuple[PurePath, str], list[str]] = {}
    for finding in inventory.findings:
        if finding.remedy is Remedy.IGNORE:
            place = PurePath(finding.place)
            passed_over.setdefault((place.parent, finding.kind.value), []).append(place.name)
            continue
        what = "the index"
        if finding.remedy is Remedy.REBUILD_QUEUE:
            what = f"queue {finding.queue_id} of {finding.topic}"
        first, count = made.get(what, (finding, 0))
        made[what] = first, count + 1
    lines = []
    if not inventory.was_closed and "the index" not in made and _has_index(inventory.root):
        lines.append("rebuilt from the log: the index: the broker was killed")
    for what, (first, count) in made.items():
        more = f", and {count - 1} more" if count > 1 else ""
        lines.append(
            f"rebuilt from the log: {what}: {first.place}, position "
            f"{first.position}: {first.kind.value}: {first.detail}{more}"
        )
    left = []
    for (where, fault), names in passed_over.items():
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        left.append(f"left alone in {where}/: {fault}: {', '.join(names[:_NAMED])}{more}")
    return lines, left


def _config_told(inventory: Inventory) -> list[str]:
    """Lines about the broker's tables of topics, groups and offsets."""
    return [
        f"{table.path}: {table.rows} {table.holds}: {table.detail}"
        if not table.offsets
        else f"{table.path}: {table.offsets} offsets of {table.rows} topics and groups: "
        f"{table.detail}"
        for table in inventory.config.found
    ]


def _has_index(root: Path) -> bool:
    return bool(index_files_in(root / INDEX_DIRECTORY))


def _read_only_told(inventory: Inventory) -> list[str]:
    names = [name for name in inventory.config.read_only if name in inventory.topics]
    if not names:
        return []
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return [
        f"topics that are read-only in the broker (perm=4) can be written to here: "
        f"{', '.join(names[:_NAMED])}{more}. Rights of users say who may (docs/security.md)"
    ]


def _held_back_told(inventory: Inventory) -> list[str]:
    if not inventory.held_back:
        return []
    return [
        *map(str, inventory.held_back),
        "they are taken over when the store is opened for the first time",
    ]


def _make_log_durable(directory: StoreDir, inventory: Inventory, progress: Progress) -> None:
    """Make the log durable, so that no opening has to survey it again."""
    paths = segment_files(directory.commitlog)
    for done, path in enumerate(paths):
        progress("making the log durable", done / len(paths))
        with path.open("rb+") as file:
            os.fsync(file.fileno())
    end = inventory.log.end
    time_ms = inventory.last_store_time_ms
    checkpoint = Checkpoint(
        log_time_ms=time_ms,
        confirmed_offset=inventory.log.last_physical_offset,
        flushed_offset=end,
    )
    for path in (directory.checkpoint, directory.previous_checkpoint):
        write_checkpoint(path, checkpoint)


def _seed_expired(
    directory: StoreDir, inventory: Inventory, clock: Clock, progress: Progress
) -> None:
    """Create queues without messages in the log whose end is only in RocketMQ's own RocksDB, so
    that their offsets continue."""
    database = own_rocksdb(directory.root)
    if inventory.log.start == 0 or database is None:
        return
    engine = RocksEngine.open_read_only(database, ROCKETMQ)
    with (
        closing(KvConsumeQueueStore(engine)) as theirs,
        closing(_open_files(directory, inventory, clock, progress)) as files,
    ):
        for unit in ends_below(theirs, inventory.log.start):
            files.restore_last_units([unit])


def _open_files(
    directory: StoreDir, inventory: Inventory, clock: Clock, progress: Progress
) -> FileSideStore:
    return open_files(directory, inventory.segment_bytes, inventory.layout, clock, progress)


def _mend(directory: StoreDir, inventory: Inventory, clock: Clock, progress: Progress) -> None:
    """Remove queues and index files with faults. The first opening rebuilds them from the log."""
    queues = {
        (finding.topic, finding.queue_id)
        for finding in inventory.findings
        if finding.remedy is Remedy.REBUILD_QUEUE
    }
    index = any(finding.remedy is Remedy.REBUILD_INDEX for finding in inventory.findings)
    if not queues and not index:
        return
    with closing(_open_files(directory, inventory, clock, progress)) as files:
        for topic, queue_id in sorted(queues, key=str):
            if topic is not None and queue_id is not None:
                files.rebuild_queue(topic, queue_id, inventory.log.start)
        if index:
            files.rebuild_index()
