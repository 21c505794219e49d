"""What a look through a stopped store can find."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace


class Kind(enum.Enum):
    """Kinds of findings. The value is for people and for `--json`."""

    IDENTITY = "store file damaged"
    CHECKPOINT_FILE = "checkpoint file damaged"
    SEGMENTS = "segments do not fit together"
    DAMAGED_RECORD = "damaged record"
    LEFT_OUT = "damaged record left out"  # information: the queues do not lead to it
    SHORT_LOG = "log ends before its durable end"
    FALLING_TIME = "store time falls"
    TORN_TAIL = "torn tail"  # information: expected after a crash, cut on opening
    METADATA = "metadata unreadable"
    DATABASE = "database unreadable"
    NO_DATABASE = "no database"  # information: made on opening
    FILES_UNREAD = "files not looked at"  # information: `kvcq migrate verify` compares them
    UNDISPATCHED = "records not dispatched yet"  # information: replayed on opening
    PENDING_DELETION = "deletion to be finished"  # information: done on opening
    AHEAD_OF_LOG = "rows ahead of the log"
    OLD_DATABASE = "database of an earlier time"
    BEYOND_CHECKPOINT = "row beyond the dispatch checkpoint"
    MISSING_UNIT = "missing unit"
    WRONG_UNIT = "wrong unit"
    HOLE = "hole in a queue"
    FALLING_OFFSET = "physical offset falls in a queue"
    MISSING_BOUND = "missing bound"
    WRONG_BOUND = "wrong bound"
    MISSING_INDEX_ROW = "missing index row"
    WRONG_INDEX_ROW = "wrong index row"
    DEAD_ROW = "row of a topic that does not exist"
    BAD_ROW = "impossible row"


#: Faults of the database: making it again from the log mends them.
MADE_FROM_THE_LOG = frozenset(
    {
        Kind.DATABASE,
        Kind.AHEAD_OF_LOG,
        Kind.BEYOND_CHECKPOINT,
        Kind.MISSING_UNIT,
        Kind.WRONG_UNIT,
        Kind.HOLE,
        Kind.FALLING_OFFSET,
        Kind.MISSING_BOUND,
        Kind.WRONG_BOUND,
        Kind.MISSING_INDEX_ROW,
        Kind.WRONG_INDEX_ROW,
        Kind.DEAD_ROW,
        Kind.BAD_ROW,
    }
)

#: Nothing that has to be done: the next opening takes care of it, or a repair did.
INFORMATION = frozenset(
    {
        Kind.LEFT_OUT,
        Kind.TORN_TAIL,
        Kind.NO_DATABASE,
        Kind.FILES_UNREAD,
        Kind.UNDISPATCHED,
        Kind.PENDING_DELETION,
    }
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found, with its place: a file below the root, or a column family."""

    kind: Kind
    place: str
    expected: str
    found: str
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    physical_offset: int | None = None
    count: int = 1  # findings like this one that are not listed are counted in the last one
    is_fault: bool = True
    note: str = ""  # what is no fault, as a sentence for people

    def __str__(self) -> str:
        where = [self.place]
        if self.topic is not None:
            where.append(f"topic {self.topic!r}")
        if self.queue_id is not None:
            where.append(f"queue {self.queue_id}")
        if self.queue_offset is not None:
            where.append(f"offset {self.queue_offset}")
        if self.physical_offset is not None:
            where.append(f"physical offset {self.physical_offset}")
        more = f" (and {self.count - 1} more)" if self.count > 1 else ""
        return (
            f"{', '.join(where)}: {self.kind.value}: expected {self.expected}, "
            f"found {self.found}{more}"
        )


@dataclass(frozen=True, slots=True)
class Checked:
    """How much was looked at."""

    records: int = 0
    units: int = 0
    index_rows: int = 0
    log_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What a check found, in the order it was found, and how much it looked at."""

    findings: list[Finding]
    checked: Checked


class Findings:
    """Collects findings; of each kind so many are listed, the rest is counted.

    Memory: bounded, however much is wrong.
    """

    def __init__(self, most_of_a_kind: int = 100) -> None:
        self._most = most_of_a_kind
        self._listed: list[Finding] = []
        self._counts: dict[Kind, int] = {}
        self._last: dict[Kind, int] = {}  # index of the last one listed

    def add(
        self,
        kind: Kind,
        place: str,
        expected: object,
        found: object,
        *,
        topic: str | None = None,
        queue_id: int | None = None,
        queue_offset: int | None = None,
        physical_offset: int | None = None,
        is_fault: bool | None = None,
        note: str = "",
    ) -> None:
        count = self._counts[kind] = self._counts.get(kind, 0) + 1
        if count > self._most:
            return
        self._last[kind] = len(self._listed)
        self._listed.append(
            Finding(
                kind,
                place,
                str(expected),
                str(found),
                topic,
                queue_id,
                queue_offset,
                physical_offset,
                is_fault=kind not in INFORMATION if is_fault is None else is_fault,
                note=note,
            )
        )

    def result(self) -> list[Finding]:
        """In the order they were found."""
        listed = list(self._listed)
        for kind, count in self._counts.items():
            if count > self._most:
                at = self._last[kind]
                listed[at] = replace(listed[at], count=count - self._most + 1)
        return listed


def size_text(size: int) -> str:
    """Bytes for people: "512 bytes", "22 MB"."""
    if size < 1000:
        return "1 byte" if size == 1 else f"{size} bytes"
    scale, unit = next(
        (each for each in ((1e3, "kB"), (1e6, "MB")) if size < 999.5 * each[0]), (1e9, "GB")
    )
    value = size / scale
    return f"{value:,.0f} {unit}" if value >= 9.95 else f"{value:.1f} {unit}"
