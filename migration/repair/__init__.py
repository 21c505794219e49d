"""Makes again what was lost or is wrong in a stopped store: topics, queues, one side.

Uses state, and the check of a store.
"""

from migration.repair.metadata import repair_metadata
from migration.repair.queues import rebuild_side_step, set_queues_aside
from migration.repair.rebuild_side import set_side_aside

__all__ = [
    "rebuild_side_step",
    "repair_metadata",
    "set_queues_aside",
    "set_side_aside",
]
