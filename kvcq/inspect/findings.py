"""The findings of a check: the same type for every side, and for the log."""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any


class Kind(enum.Enum):
    """Kinds of findings. The values are shown to people and in `--json`."""

    # The store as a whole, and its log.
    IDENTITY = "store file damaged"
    CHECKPOINT_FILE = "checkpoint file damaged"
    NOTE = "note damaged"
    SEGMENTS = "segments do not fit together"
    DAMAGED_RECORD = "damaged record"
    LEFT_OUT = "damaged record left out"  # information: the queues do not lead to it
    SHORT_LOG = "log ends before its durable end"
    FALLING_TIME = "store time falls"
    BATCH_PLACE = "place in a batch does not fit"
    TORN_TAIL = "torn tail"  # information: expected after a crash, cut on opening
    SNAPSHOT = "damaged snapshot"
    OLD_SNAPSHOT = "snapshot of another log"  # information: removed on opening
    STATE = "wrong row of state"
    OLD_FORMAT = "store of an older format"  # information: upgraded on opening
    # Any side.
    UNDISPATCHED = "records not dispatched yet"  # information: replayed on opening
    AHEAD_OF_LOG = "rows ahead of the log"
    MISSING_UNIT = "missing unit"
    WRONG_UNIT = "wrong unit"
    FALLING_OFFSET = "physical offset falls"
    MISSING_INDEX_ROW = "missing index row"
    WRONG_INDEX_ROW = "wrong index row"
    # RocksDB.
    DATABASE = "database unreadable"
    NO_DATABASE = "no database"  # information: made on opening
    LOST_STATE = "no database and no snapshot"
    OLD_DATABASE = "database of an earlier time"
    BEYOND_CHECKPOINT = "row beyond the dispatch point"
    MISSING_BOUND = "missing bound"
    WRONG_BOUND = "wrong bound"
    DEAD_ROW = "row of a topic that does not exist"
    BAD_ROW = "impossible row"
    # Queue files and index files.
    FILES_UNREAD = "files not looked at"  # information: a take-over is to be finished
    FOREIGN = "foreign file"
    HOLE = "hole in a queue"
    TRUNCATED = "truncated file"
    OVERSIZED = "oversized file"
    OVERLAPPING = "overlapping file"
    MISSING = "missing file"
    UNREADABLE = "unreadable file"
    IMPOSSIBLE = "impossible unit"
    PAST_LOG = "past the end of the log"
    NO_RECORD = "no record there"
    ENDS_EARLY = "ends before the log"
    STARTS_LATE = "starts behind the log"
    MISSING_QUEUE = "missing queue"
    BAD_HEADER = "impossible header"
    BAD_CHAIN = "impossible chain"
    NOT_READ = "file of a kind that is not read"
    # In a broker's log, before it is taken over; information only.
    REPEATED_OFFSET = "queue offset given twice"
    SKIPPED_OFFSET = "queue offset left out"


class Remedy(enum.Enum):
    """What fixes a finding. The value is shown to people and in `--json`, and follows "would"."""

    NEXT_START = "be set right by the next start"
    RESTORE = "have to be brought back from a copy"
    TOLERATE = "do no harm but to searches by time"
    TOLERATE_PLACE = "do no harm but to finding that batch again by its number"
    REMOVE = "have to be removed: they are never used, and the server takes others"
    REBUILD_STATE = "make topics, groups and offsets again from a snapshot and the log"
    REBUILD_DATABASE = "rebuild queues, bounds and index rows in RocksDB from the log"
    REBUILD_FILES = "rebuild queue files and index files from the log"
    REBUILD_QUEUE = "rebuild queue from the log"
    REBUILD_INDEX = "rebuild index from the log"
    IGNORE = "leave it where it is"
    REFUSE = "nothing: the store cannot be taken over with it"


#: What to do for each kind of finding. For all others the side is derived again.
_REMEDIES = {
    Kind.IDENTITY: Remedy.RESTORE,
    Kind.CHECKPOINT_FILE: Remedy.NEXT_START,
    Kind.NOTE: Remedy.NEXT_START,
    Kind.SEGMENTS: Remedy.RESTORE,
    Kind.DAMAGED_RECORD: Remedy.RESTORE,
    Kind.LEFT_OUT: Remedy.RESTORE,
    Kind.SHORT_LOG: Remedy.RESTORE,
    Kind.FALLING_TIME: Remedy.TOLERATE,
    Kind.BATCH_PLACE: Remedy.TOLERATE_PLACE,
    Kind.TORN_TAIL: Remedy.NEXT_START,
    Kind.SNAPSHOT: Remedy.REMOVE,
    Kind.OLD_SNAPSHOT: Remedy.NEXT_START,
    Kind.STATE: Remedy.REBUILD_STATE,
    Kind.OLD_FORMAT: Remedy.NEXT_START,
    Kind.UNDISPATCHED: Remedy.NEXT_START,
    Kind.NO_DATABASE: Remedy.NEXT_START,
    Kind.LOST_STATE: Remedy.RESTORE,
    Kind.OLD_DATABASE: Remedy.NEXT_START,
    Kind.FILES_UNREAD: Remedy.NEXT_START,
}

#: Findings that need no action: the next opening handles them, or a repair did.
_INFORMATION = frozenset(
    {
        Kind.LEFT_OUT,
        Kind.TORN_TAIL,
        Kind.NO_DATABASE,
        Kind.FILES_UNREAD,
        Kind.UNDISPATCHED,
        Kind.OLD_SNAPSHOT,
        Kind.OLD_FORMAT,
    }
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding, with its place: a file below the root, or a column family.

    Consecutive equal faults in one file are one finding.
    """

    kind: Kind
    place: str
    expected: str
    found: str
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    physical_offset: int | None = None
    count: int = 1  # the last listed finding also counts those like it that are not listed
    is_fault: bool = True
    note: str = ""  # a sentence for operators, if it is not a fault
    side: str = "rocksdb"  # a side, or "store" or "log"
    position: int | None = None  # bytes into the file
    own_remedy: Remedy | None = None  # if it differs from that of its kind

    @property
    def remedy(self) -> Remedy:
        default = Remedy.REBUILD_FILES if self.side == "files" else Remedy.REBUILD_DATABASE
        return self.own_remedy or _REMEDIES.get(self.kind, default)

    @property
    def detail(self) -> str:
        """What was found, for a reader who sees kind and place next to it."""
        return f"expected {self.expected}, found {self.found}" if self.expected else self.found

    def as_json(self) -> dict[str, Any]:
        """In camelCase, for `--json`."""
        return {
            "kind": self.kind.value,
            "side": self.side,
            "place": self.place,
            "position": self.position,
            "topic": self.topic,
            "queueId": self.queue_id,
            "queueOffset": self.queue_offset,
            "physicalOffset": self.physical_offset,
            "expected": self.expected,
            "found": self.found,
            "count": self.count,
            "note": self.note,
            "remedy": self.remedy.value,
        }

    def __str__(self) -> str:
        where = [self.place]
        if self.position is not None:
            where.append(f"position {self.position}")
        if self.topic is not None:
            where.append(f"topic {self.topic!r}")
        if self.queue_id is not None:
            where.append(f"queue {self.queue_id}")
        if self.queue_offset is not None:
            where.append(f"offset {self.queue_offset}")
        if self.physical_offset is not None:
            where.append(f"physical offset {self.physical_offset}")
        more = f" (and {self.count - 1} more)" if self.count > 1 else ""
        return f"{', '.join(where)}: {self.kind.value}: {self.detail}{more}"


@dataclass(frozen=True, slots=True)
class Checked:
    """How much was checked. Units and index rows: of all sides."""

    records: int = 0
    units: int = 0
    index_rows: int = 0
    log_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The findings of a check, in order, and how much it checked."""

    findings: list[Finding]
    checked: Checked


class Findings:
    """Collects findings; for each side a limited number of each kind is listed, the rest is
    counted.

    Memory: bounded, however much is wrong.
    """

    def __init__(self, most_of_a_kind: int = 100) -> None:
        self._most = most_of_a_kind
        self._listed: list[Finding] = []
        self._counts: Counter[tuple[Kind, str]] = Counter()
        self._unlisted: Counter[tuple[Kind, str]] = Counter()
        self._last: dict[tuple[Kind, str], int] = {}  # index of the last one listed

    def add(
        self,
        kind: Kind,
        place: str,
        expected: object,
        found: object,
        *,
        side: str = "store",
        topic: str | None = None,
        queue_id: int | None = None,
        queue_offset: int | None = None,
        physical_offset: int | None = None,
        position: int | None = None,
        count: int = 1,
        is_fault: bool | None = None,
        note: str = "",
        remedy: Remedy | None = None,
    ) -> None:
        of_a_kind = (kind, side)
        if self._counts[of_a_kind] >= self._most:
            self._unlisted[of_a_kind] += count
            return
        self._counts[of_a_kind] += count
        self._last[of_a_kind] = len(self._listed)
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
                count,
                is_fault=kind not in _INFORMATION if is_fault is None else is_fault,
                note=note,
                side=side,
                position=position,
                own_remedy=remedy,
            )
        )

    def result(self) -> list[Finding]:
        """All findings in the order they were found."""
        listed = list(self._listed)
        for of_a_kind, count in self._unlisted.items():
            at = self._last[of_a_kind]
            listed[at] = replace(listed[at], count=listed[at].count + count)
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
