"""Snapshots: sealed copies of the state at points of the log.

They are taken while the store runs, and used by an opening whose database is lost, damaged, or
ahead of the log. Uses the engine and the tables.
"""

from kvcq.snapshots.placing import (
    has_usable_snapshot,
    place_copy,
    place_empty,
    place_sealed,
    remove_unfinished,
    state_lost,
)
from kvcq.snapshots.snapshot import DIRECTORY, SEALED_FILES, Snapshot, snapshots_in
from kvcq.snapshots.taking import Snapshots, drop_unfit

__all__ = [
    "DIRECTORY",
    "SEALED_FILES",
    "Snapshot",
    "Snapshots",
    "drop_unfit",
    "has_usable_snapshot",
    "place_copy",
    "place_empty",
    "place_sealed",
    "remove_unfinished",
    "snapshots_in",
    "state_lost",
]
