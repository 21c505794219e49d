"""What a look through legacy files can find, and what is to be done about it."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


#: Where a derived file and a record that verifies do not agree, either may be the wrong one.
#: RocketMQ's checksum of a record covers its body alone, unless enabledAppendPropCRC is set.
UNCOVERED = "; or that record is damaged: no checksum need cover its header and properties"


class Fault(enum.Enum):
    """Kinds of findings. The value is for people and for `--json`."""

    FOREIGN = "foreign file"
    TRUNCATED = "truncated file"
    OVERSIZED = "oversized file"
    OVERLAPPING = "overlapping file"
    MISSING = "missing file"
    UNREADABLE = "unreadable file"
    HOLE = "hole"
    IMPOSSIBLE = "impossible unit"
    FALLING = "physical offset falls"
    PAST_LOG = "past the end of the log"
    NO_RECORD = "no record there"
    WRONG_RECORD = "wrong record"
    ENDS_EARLY = "ends before the log"
    STARTS_LATE = "starts behind the log"
    MISSING_QUEUE = "missing queue"
    BAD_HEADER = "impossible header"
    BAD_CHAIN = "impossible chain"
    NOT_READ = "file of a kind that is not read"


class Remedy(enum.Enum):
    """What the migration would do."""

    IGNORE = "leave it where it is"
    REBUILD_QUEUE = "rebuild queue from the log"
    REBUILD_INDEX = "rebuild index from the log"
    REFUSE = "nothing: the store cannot be taken over with it"


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault, with its place. A run of equal faults in one file is one finding."""

    path: Path
    position: int  # bytes into the file
    fault: Fault
    detail: str
    remedy: Remedy
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    count: int = 1  # units or entries concerned

    def __str__(self) -> str:
        times = f" ({self.count} of them)" if self.count > 1 else ""
        return (
            f"{self.path}, position {self.position}: {self.fault.value}: {self.detail}{times};"
            f" would {self.remedy.value}"
        )
