"""Rebuilds lost or wrong parts of a stopped store: state, queues, one side."""

from migration.repair.queues import rebuild_side_step, set_queues_aside
from migration.repair.rebuild_side import set_side_aside
from migration.repair.state import repair_state

__all__ = [
    "rebuild_side_step",
    "repair_state",
    "set_queues_aside",
    "set_side_aside",
]
