"""Sets one side of a stopped store aside, to be rebuilt from the log."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from kvcq.inspect import Kind, Remedy
from kvcq.without_queues import place_without_queues
from migration.check import check_store
from migration.errors import IllegalStepError
from migration.files import CHECKPOINT_FILE
from migration.formats import QUEUE_DIRECTORY
from migration.next_step import NextStep
from migration.repair.queues import REPLACED
from migration.state import SideName, next_step, read_state, write_state
from store.base import SystemClock, make_directory, move_aside
from store.errors import StoreFormatError
from store.log import SegmentSet
from store.store_dir import StoreDir, inspect

if TYPE_CHECKING:
    from pathlib import Path

    from migration.state import MigrationState


def set_side_aside(root: Path, name: SideName) -> None:
    """Rename the side's directories, and create an empty one in their place.

    The next opening then treats the side as empty, not as missing, and fills it from the log. Data
    that the log lacks is lost: queues whose messages have all expired begin at 0 again, unless the
    other side has them. Raises StoreFormatError, StoreLockedError, IllegalStepError if the side is
    not in use, or is not proved wrong: it may be the correct one.
    """
    _, identity = inspect(root)
    state = read_state(root)
    if identity is None or state is None:
        raise StoreFormatError(root, "has no migration")
    if not state.uses(name):
        raise IllegalStepError(
            f"rebuild {name.value}", state.phase.value, "it is not in use", next_step(state)
        )
    if not _is_proved_wrong(root, state, name):
        raise IllegalStepError(
            f"rebuild {name.value}",
            state.phase.value,
            f"no verification has found the {name.value} side wrong, and it may be the correct one",
            NextStep("verify"),
        )
    clock = SystemClock()
    with closing(StoreDir.open(root, identity.segment_bytes, clock)) as directory:
        # First, because a verification must not apply to a side that was replaced.
        event = f"the {name.value} side is rebuilt; what was verified of it is invalidated"
        write_state(root, state.moved(clock.now_ms(), event, **state.rebuilt(name.value)))
        if name is SideName.ROCKSDB:
            with closing(SegmentSet.load(directory.commitlog, identity.segment_bytes)) as segments:
                place_without_queues(directory, segments, REPLACED)
            return
        for path in (root / CHECKPOINT_FILE, directory.index, directory.consumequeue):
            if path.exists():
                move_aside(path, REPLACED)
        make_directory(directory.consumequeue)


def _is_proved_wrong(root: Path, state: MigrationState, name: SideName) -> bool:
    """Whether a verification found the side wrong, or it is missing or cannot be opened. Otherwise
    checks the whole store."""
    if name.value in state.blamed:
        return True
    if state.stopped and state.unopened == name.value:
        return True
    directory, remedy = {
        SideName.FILES: (QUEUE_DIRECTORY, Remedy.REBUILD_FILES),
        SideName.ROCKSDB: ("kvcq", Remedy.REBUILD_DATABASE),
    }[name]
    if not (root / directory).is_dir():
        return True
    faults = [each for each in check_store(root) if each.is_fault]
    unreadable: set[Kind] = {Kind.DATABASE, Kind.LOST_STATE} if name is SideName.ROCKSDB else set()
    return any(each.remedy is remedy or each.kind in unreadable for each in faults)
