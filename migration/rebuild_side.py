"""Set one side of a stopped store aside, to be made again from the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from migration.errors import IllegalStepError
from migration.repair_queues import move_aside
from migration.routes import SideName
from migration.state import Phase, read_state, write_state
from migration.state_keeper import next_command
from store.errors import StoreFormatError
from store.files import make_directory
from store.store_dir import DirKind, StoreDir, inspect

if TYPE_CHECKING:
    from pathlib import Path

    from store.clock import Clock


def set_side_aside(root: Path, name: SideName, clock: Clock) -> None:
    """The side's directories have other names, and an empty one stands in their place.

    So the next opening takes the side for one that has nothing yet, not for one that is missing.
    Raises StoreFormatError, StoreLockedError, IllegalStepError when the side is not in use.
    """
    kind, identity = inspect(root)
    state = read_state(root)
    if kind is not DirKind.OURS or identity is None or state is None:
        raise StoreFormatError(root, "has no migration")
    needed = state.needs_files if name is SideName.FILES else state.needs_rocksdb
    if not needed:
        raise IllegalStepError(
            f"rebuild {name.value}", state.phase.value, "it is not in use", next_command(state)
        )
    directory = StoreDir.open(root, identity.segment_bytes, clock)
    try:
        if state.verified is not None:
            # First: what is verified must never be said of a side that is gone.
            phase = Phase.DOUBLE_WRITE if state.phase is Phase.VERIFIED else state.phase
            event = f"the {name.value} side is made anew; what was verified is gone"
            write_state(root, state.moved(clock.now_ms(), event, phase=phase, verified=None))
        if name is SideName.ROCKSDB:
            paths = [directory.kvcq]
        else:
            paths = [root / "file_queue_checkpoint", directory.index, directory.consumequeue]
        for path in paths:
            if path.exists():
                move_aside(path, "replaced")
        make_directory(paths[-1])
    finally:
        directory.close()
