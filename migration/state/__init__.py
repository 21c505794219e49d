"""migration.json, its meaning for dispatch and reads, and the next step."""

from migration.state.keeper import StateKeeper, next_step
from migration.state.phase import Phase, SideName
from migration.state.state import (
    STATE_FILE,
    BrokenOff,
    FileLayout,
    MigrationState,
    VerifyResult,
    has_migration,
    read_state,
    write_state,
)

__all__ = [
    "STATE_FILE",
    "BrokenOff",
    "FileLayout",
    "MigrationState",
    "Phase",
    "SideName",
    "StateKeeper",
    "VerifyResult",
    "has_migration",
    "next_step",
    "read_state",
    "write_state",
]
