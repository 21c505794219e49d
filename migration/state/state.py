"""The state of a migration, in `<root>/migration.json`. It is correct at any time, even after a
crash.

| phase        | written to     | reads come from |
|--------------|----------------|-----------------|
| FILES        | files          | files           |
| DOUBLE_WRITE | files, RocksDB | files           |
| VERIFIED     | files, RocksDB | files           |
| ROCKSDB      | files, RocksDB | RocksDB         |
| FINISHED     | RocksDB        | RocksDB         |

A store without the file was created by this program and only uses RocksDB. The file is replaced by
a rename, durably. Each change of phase is one replacement, so a crash leaves the old or the new
phase. A step creates files before the replacement, so the files of a phase exist. It removes files
after the replacement; the next opening repeats that after a crash.

One line of JSON, then its CRC-32 in hex, so that a flipped bit is detected.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from migration.errors import MigrationStateError
from migration.formats import (
    ENTRIES_PER_FILE,
    SLOTS_PER_FILE,
    UNITS_PER_FILE,
    ChecksumError,
    IndexLayout,
    read_checked,
    write_checked,
)
from migration.state.phase import Phase, SideName
from store.store_dir import MIGRATION_FILE

if TYPE_CHECKING:
    from pathlib import Path

STATE_FILE = MIGRATION_FILE
_VERSION = 2
#: The routing of topics in version 1. Now the phase decides for all topics.
_NO_ROUTING = {"rules": [], "default": "both"}
#: Most events in the history.
_HISTORY = 50


@dataclass(frozen=True, slots=True)
class FileLayout:
    """Sizes of queue and index files. RocketMQ must use the same."""

    units_per_file: int = UNITS_PER_FILE
    index_slots: int = SLOTS_PER_FILE
    index_entries: int = ENTRIES_PER_FILE
    #: Physical offset from which on the index has the tags of records, too, as in RocketMQ from 5.5
    #: on. None: it has no tags; also in states that older programs wrote.
    index_tags_from: int | None = None

    @property
    def index(self) -> IndexLayout:
        return IndexLayout(self.index_slots, self.index_entries)


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """The result of the last complete verification."""

    cut_offset: int  # physical: everything below was compared
    compared_units: int
    difference_count: int
    finished_ms: int
    sides: str = ""  # sides that differ from the log, separated by blanks


@dataclass(frozen=True, slots=True)
class BrokenOff:
    """Why a verification was aborted. The next one starts over."""

    reason: str
    side: str = ""  # the side that could not be read; empty if no side is the cause


@dataclass(frozen=True, slots=True)
class MigrationState:
    """Everything stored about a migration."""

    phase: Phase
    layout: FileLayout = field(default_factory=FileLayout)
    #: The phase to change to once a side is filled; None if no change is in progress.
    pending: Phase | None = None
    #: Why a side was stopped; "" if none is. `resume` brings it up again.
    stopped: str = ""
    #: The stopped side, if it could not be opened.
    unopened: str = ""
    #: Whether the broker deleted unexpired messages for space (cleanFileForciblyEnable); None if
    #: that is unknown. A setting of the store takes precedence.
    reclaim_unexpired: bool | None = None
    verified: VerifyResult | None = None
    #: The last verification, if it was aborted.
    broken_off: BrokenOff | None = None
    #: Set once a release has begun; then only a release may continue. Where the queues go, as in
    #: `release.Home`; "" if they stay where they are.
    released: str | None = None
    #: The next opening takes over messages that the broker had not delivered, in the log below this
    #: physical offset. None once that is done.
    inherits: int | None = None
    #: Tables of the broker's `config/` that were taken over; None if that was not recorded.
    config: tuple[str, ...] | None = None
    #: (ms since 1970, what happened)
    history: tuple[tuple[int, str], ...] = ()

    def uses(self, side: SideName) -> bool:
        """Whether the side is in use, or will be after the current change."""
        return self.phase.uses(side) or (self.pending is not None and self.pending.uses(side))

    @property
    def blamed(self) -> list[str]:
        """Sides in use that the last verification proved wrong, or could not read."""
        unread = "" if self.broken_off is None else self.broken_off.side
        found = [unread] if unread else []
        if self.verified is not None:
            found += self.verified.sides.split()
        in_use = {side.value for side in SideName if self.uses(side)}
        return [side for side in dict.fromkeys(found) if side in in_use]

    def rebuilt(self, side: str) -> dict[str, Any]:
        """Field changes when a side is rebuilt: results of the verification of this side are
        discarded; those of the other side stay."""
        phase = Phase.DOUBLE_WRITE if self.phase is Phase.VERIFIED else self.phase
        verified = None
        if self.verified is not None:
            others = [each for each in self.verified.sides.split() if each != side]
            verified = replace(self.verified, sides=" ".join(others)) if others else None
        broken_off = self.broken_off
        if broken_off is not None and broken_off.side == side:
            broken_off = None
        return {"phase": phase, "verified": verified, "broken_off": broken_off}

    def moved(self, now_ms: int, event: str, **changes: Any) -> MigrationState:  # noqa: ANN401 - fields
        """A copy with `changes`, and the event in its history."""
        history = (*self.history, (now_ms, event))[-_HISTORY:]
        return replace(self, history=history, **changes)


def to_document(state: MigrationState) -> dict[str, Any]:
    """The state in plain values, for the file."""
    pending = state.pending
    broken_off = state.broken_off or BrokenOff("")
    return {
        "phase": state.phase.value,
        "layout": asdict(state.layout),
        "pending": None if pending is None else pending.value,
        "stopped": state.stopped,
        "unopened_side": state.unopened,
        "reclaim_unexpired": state.reclaim_unexpired,
        "verified": None if state.verified is None else asdict(state.verified),
        "verify_broken_off": broken_off.reason,
        "unreadable_side": broken_off.side,
        "released": state.released,
        "inherits": state.inherits,
        "config": None if state.config is None else list(state.config),
        "history": [list(each) for each in state.history],
    }


def has_migration(root: Path) -> bool:
    """Whether there is a migration.json, readable or not."""
    return (root / STATE_FILE).exists()


def read_state(root: Path) -> MigrationState | None:
    """The content of migration.json; None if there is none. Raises MigrationStateError."""
    path = root / STATE_FILE
    try:
        document = read_checked(path)
    except ChecksumError:
        raise MigrationStateError(
            path, "its checksum does not match: restore it from a copy of the directory"
        ) from None
    if document is None:
        return None
    # Check the version first: a newer one may have changed everything else.
    if document["version"] > _VERSION:
        raise MigrationStateError(
            path, f"version {document['version']}, this program knows up to {_VERSION}"
        )
    try:
        pending = _pending(path, document)
        verified = document["verified"]
        return MigrationState(
            phase=Phase(document["phase"]),
            layout=FileLayout(**document["layout"]),
            pending=None if pending is None else Phase(pending),
            stopped=document["stopped"],
            verified=None if verified is None else VerifyResult(**verified),
            # Missing in files of the first versions.
            reclaim_unexpired=document.get("reclaim_unexpired"),
            unopened=document.get("unopened_side", ""),
            released=document.get("released"),
            inherits=document.get("inherits"),
            broken_off=BrokenOff(reason, document.get("unreadable_side", ""))
            if (reason := document.get("verify_broken_off", ""))
            else None,
            config=None if document.get("config") is None else tuple(document["config"]),
            history=tuple((time_ms, event) for time_ms, event in document["history"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise MigrationStateError(path, f"does not make sense: {error!r}") from error


def _pending(path: Path, document: dict[str, Any]) -> str | None:
    """The pending phase. Raises MigrationStateError for topics with their own routing, which is no
    longer supported."""
    pending = document["pending"]
    if document["version"] > 1:
        return None if pending is None else str(pending)
    routings = [document["routing"]] + ([] if pending is None else [pending["routing"]])
    if any(each != _NO_ROUTING for each in routings):
        raise MigrationStateError(
            path,
            "has a routing for single topics, which this version does not support. First remove it "
            "with version 0.1: `kvcq migrate routing --clear`",
        )
    return None if pending is None else str(pending["phase"])


def write_state(root: Path, state: MigrationState) -> None:
    """Replace migration.json with `state`, durably. After a crash it has the new or the old
    content. Raises OSError; the file is then unchanged."""
    write_checked(root / STATE_FILE, {"version": _VERSION, **to_document(state)})
