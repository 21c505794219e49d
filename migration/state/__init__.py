"""What migration.json says, what it means for one dispatch and one read, and what comes next.

Uses the formats.
"""

from migration.state.keeper import StateKeeper, next_step
from migration.state.routes import Routes, SideName, may_gain, split
from migration.state.routing import Route, RoutingPolicy, Rule, parse_rules
from migration.state.state import (
    BEFORE_CUTOVER,
    STATE_FILE,
    BrokenOff,
    FileLayout,
    MigrationState,
    Phase,
    Target,
    VerifyResult,
    has_migration,
    read_state,
    write_state,
)

__all__ = [
    "BEFORE_CUTOVER",
    "STATE_FILE",
    "BrokenOff",
    "FileLayout",
    "MigrationState",
    "Phase",
    "Route",
    "Routes",
    "RoutingPolicy",
    "Rule",
    "SideName",
    "StateKeeper",
    "Target",
    "VerifyResult",
    "has_migration",
    "may_gain",
    "next_step",
    "parse_rules",
    "read_state",
    "split",
    "write_state",
]
