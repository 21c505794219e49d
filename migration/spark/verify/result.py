"""What a verification found, for people and for programs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from migration.spark.verify.tasks import FILES, LOG, ROCKSDB
from migration.spark.verify.unit_digest import BUCKETS

if TYPE_CHECKING:
    from pathlib import Path


class Difference(NamedTuple):
    """One field of one unit that is not the same everywhere; None where there is no such value.

    The field `unit` stands for the whole of it: 1 where there is a unit, None where there is not.
    `max_offset` and `max_place` are those of a queue's last unit, by the log and by the row that
    says so; they have no queue offset. `key` is a row of the key index: it has no queue, and the
    values are physical offsets of the record; `key_stamp` is the value of such a row.
    """

    topic: str
    queue_id: int | None
    queue_offset: int | None
    field: str
    log: int | None
    files: int | None
    rocksdb: int | None
    key: str | None = None

    def as_json(self) -> dict[str, Any]:
        """In camelCase, for `--json`."""
        values = self._asdict()
        places = {"queueId": values.pop("queue_id"), "queueOffset": values.pop("queue_offset")}
        return places | values

    @property
    def order(self) -> tuple[object, ...]:
        """Sorts by topic, queue, offset, field, key; what has no queue comes last."""
        places = [(place is None, place or 0) for place in (self.queue_id, self.queue_offset)]
        values = [(value is None, value or 0) for value in self[4:7]]
        return self.topic, *places, self.field, self.key or "", *values

    @property
    def place(self) -> str:
        """Where, in words."""
        if self.key is not None:
            return f"{self.topic} key {self.key!r}"
        queue = f"{self.topic} queue {self.queue_id}"
        return queue if self.queue_offset is None else f"{queue} offset {self.queue_offset}"


@dataclass(frozen=True)
class VerifyResult:
    """What was compared, and what came out."""

    begin: int
    end: int
    units: dict[str, int]  # of each source
    bad_buckets: int
    differences: int
    by_field: dict[str, int]
    first: list[Difference] = field(default_factory=list)
    output: Path | None = None
    seconds: float = 0.0
    queues: int = 0  # whose ends were compared
    keys: dict[str, int] = field(default_factory=dict)  # index rows of each source

    @property
    def equal(self) -> bool:
        return self.differences == 0

    def summary(self) -> str:
        """The result in some lines of text."""
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
        for one in self.first:
            values = ", ".join(
                f"{source} {'none' if value is None else value}"
                for source, value in zip((LOG, FILES, ROCKSDB), one[4:7], strict=True)
                if source in self.units or value is not None
            )
            lines.append(f"  {one.place}: {one.field}: {values}")
        if self.differences > len(self.first):
            lines.append(f"  and {self.differences - len(self.first):,} more")
        if self.output is not None:
            lines.append(f"all of them: {self.output}")
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """The same, for machines."""
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
