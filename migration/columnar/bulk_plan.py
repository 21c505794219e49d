"""The plan for the process that writes sorted files, passed to it pickled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from migration.columnar.liveness import Liveness


@dataclass(frozen=True)
class BulkPlan:
    """Everything that the process has to know."""

    commitlog: Path
    segment_bytes: int
    start: int  # physical offset of the first record
    piece_bytes: int  # a piece of the log, about
    output: Path  # on the file system of the database
    liveness: Liveness  # when the pieces were begun
    skip_damaged: bool = False  # leave damaged records out
