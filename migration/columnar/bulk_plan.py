"""The plan for the process that writes sorted files, passed to it pickled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from migration.columnar.liveness import Liveness


@dataclass(frozen=True)
class BulkPlan:
    """The arguments of the process."""

    commitlog: Path
    segment_bytes: int
    start: int  # physical offset of the first record
    piece_bytes: int  # approximate size of a piece of the log
    output: Path  # must be on the file system of the database
    liveness: Liveness  # as of the start
    skip_damaged: bool = False  # leave damaged records out
