"""The phase of a migration, and what it means for dispatch and reads."""

from __future__ import annotations

import enum


class SideName(enum.Enum):
    """One of the two stores of queues."""

    FILES = "files"
    ROCKSDB = "rocksdb"

    @property
    def other(self) -> SideName:
        return SideName.ROCKSDB if self is SideName.FILES else SideName.FILES


class Phase(enum.Enum):
    """A state of a migration; the table is in state.py."""

    ADOPTING = "ADOPTING"  # a RocketMQ store is being taken over; `start` continues it
    FILES = "FILES"
    DOUBLE_WRITE = "DOUBLE_WRITE"
    VERIFIED = "VERIFIED"
    ROCKSDB = "ROCKSDB"
    FINISHED = "FINISHED"

    @property
    def serving(self) -> SideName:
        """The side that serves reads. If it fails, the store fails."""
        return SideName.FILES if self in BEFORE_CUTOVER else SideName.ROCKSDB

    def uses(self, side: SideName) -> bool:
        """Whether the side is written to."""
        if side is SideName.FILES:
            return self is not Phase.FINISHED
        return self not in (Phase.ADOPTING, Phase.FILES)


#: Phases before the cutover: reads come from files.
BEFORE_CUTOVER = frozenset({Phase.ADOPTING, Phase.FILES, Phase.DOUBLE_WRITE, Phase.VERIFIED})
