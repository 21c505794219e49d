"""The result of a verification, for people and for programs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from kvcq.inspect import Finding, Kind
from migration.spark.verify.digest import BUCKETS
from migration.state import SideName

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from migration.columnar import Liveness

#: Maximum number of differences that are reported one by one.
SHOWN = 20
#: The kind of difference by field: missing, unexpected, or different.
_KINDS = {
    "unit": (Kind.MISSING_UNIT, Kind.WRONG_UNIT),
    "max_offset": (Kind.MISSING_BOUND, Kind.WRONG_BOUND),
    "max_place": (Kind.MISSING_BOUND, Kind.WRONG_BOUND),
    "key": (Kind.MISSING_INDEX_ROW, Kind.WRONG_INDEX_ROW),
    "key_stamp": (Kind.WRONG_INDEX_ROW, Kind.WRONG_INDEX_ROW),
}
_FILE_FIELDS = ("unit", "physical_offset", "record_size", "tag_code")


class Difference(NamedTuple):
    """A row of the output: a field that differs between sources; None for a missing value.

    Field `unit` is the whole unit: 1 if it exists, None if not. `max_offset` and `max_place` are
    queue and physical offset of a queue's last unit; they have no queue offset. `key` is a row of
    the key index: it has no queue, and the values are physical offsets of the record. `key_stamp`
    is the value of such a row.
    """

    topic: str
    queue_id: int | None
    queue_offset: int | None
    field: str
    log: int | None
    files: int | None
    rocksdb: int | None
    key: str | None = None

    def findings(self, liveness: Liveness, sides: Collection[str]) -> Iterator[Finding]:
        """A finding for each side that differs from the log."""
        for name in (SideName.FILES, SideName.ROCKSDB):
            there = self.files if name is SideName.FILES else self.rocksdb
            # A missing unit is only reported by the field `unit`.
            is_whole = self.field in _KINDS or (there is not None and self.log is not None)
            is_kept = name is SideName.ROCKSDB or self.field in _FILE_FIELDS
            if name.value not in sides or there == self.log:
                continue
            if is_whole and is_kept:
                missing, wrong = _KINDS.get(self.field, (Kind.WRONG_UNIT, Kind.WRONG_UNIT))
                yield Finding(
                    missing if there is None else wrong,
                    self.field if self.key is None else f"{self.field} {self.key}",
                    self._text(self.log),
                    self._text(there),
                    self.topic,
                    self.queue_id,
                    self.queue_offset,
                    side=name.value,
                )

    def _text(self, value: int | None) -> str:
        if value is None:
            return "nothing"
        return "a unit" if self.field == "unit" else str(value)


@dataclass(frozen=True)
class VerifyResult:
    """The numbers of compared rows, and the differences."""

    begin: int
    end: int
    units: dict[str, int]  # of each source
    bad_buckets: int
    differences: int
    by_field: dict[str, int]
    first: list[Finding] = field(default_factory=list)  # of the first SHOWN differences
    output: Path | None = None
    seconds: float = 0.0
    queues: int = 0  # number of queues whose ends were compared
    keys: dict[str, int] = field(default_factory=dict)  # index rows of each source

    @property
    def equal(self) -> bool:
        return self.differences == 0

    def summary(self) -> str:
        """The result as some lines of text."""
        lines = [f"compared records from {self.begin} to {self.end} of the log"]
        lines += [f"  {source:14} {count:>14,} units" for source, count in self.units.items()]
        lines += [f"  {source:14} {count:>14,} index rows" for source, count in self.keys.items()]
        if self.queues:
            lines.append(f"  {'ends':14} {self.queues:>14,} queues")
        if self.equal:
            lines.append(f"equal, in {self.seconds:.1f} s")
            return "\n".join(lines)
        lines.append(f"{self.differences:,} differences in {self.bad_buckets} of {BUCKETS} buckets")
        lines += [f"  {name:16} {count:>10,}" for name, count in self.by_field.items()]
        lines += [f"  {one.side}: {one}" for one in self.first]
        if self.differences > SHOWN:
            lines.append(f"  and {self.differences - SHOWN:,} more")
        if self.output is not None:
            lines.append(f"all of them: {self.output}")
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        return {
            "equal": self.equal,
            "begin": self.begin,
            "end": self.end,
            "units": self.units,
            "queues": self.queues,
            "keys": self.keys,
            "badBuckets": self.bad_buckets,
            "differences": self.differences,
            "byField": self.by_field,
            "first": [one.as_json() for one in self.first],
            "output": None if self.output is None else str(self.output),
            "seconds": round(self.seconds, 3),
        }
