"""What a measurement is made of."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

OURS = "kvcq"
BODY_BYTES = 1024
BATCH = 128
#: Batches of a client that are under way at once, where its system has a use for more than one.
AT_ONCE = 8
CALLERS = 64
#: What is done at a tenth beforehand is done in this one, of all kinds of work.
WARM_UP_QUEUE = "warm"


class Durability(StrEnum):
    """When a message is acknowledged."""

    BEFORE_FSYNC = "before fsync"
    AFTER_FSYNC = "after fsync"


class Memory(StrEnum):
    """What fresh pages cost while it is measured: see `cold`."""

    #: Made dear: for what takes much of it.
    COLD = "cold"
    TOUCHED = "touched"
    #: As what was measured before has left it: for what takes little.
    AS_IT_COMES = "as it comes"


class PeerMissingError(Exception):
    """The system is not installed; the text says what to install."""


class NotOfferedError(Exception):
    """The system, or its client, cannot do this; the text says why."""


@dataclass(frozen=True, slots=True)
class Timed:
    """What a client says of a piece of work: how many, how long, and each call where it is one."""

    count: int
    seconds: float
    p50_us: float | None = None
    p99_us: float | None = None
    #: Of long work: the rate of its last tenth over that of its first.
    last_tenth: float | None = None

    @classmethod
    def of_calls(cls, calls_s: list[float], seconds: float, each: int = 1) -> Timed:
        """Of single calls that took so long, with `each` messages a call."""
        ordered = sorted(calls_s)

        def percentile(share: float) -> float:
            return ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1e6

        if not ordered:
            return cls(0, seconds)
        return cls(len(ordered) * each, seconds, percentile(0.5), percentile(0.99))

    def document(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Sample:
    """One round of one piece of work of one system."""

    system: str
    work: str
    durability: str
    memory: str
    round: int
    timed: dict[str, Any]
    client_cpu_s: float = 0.0
    server_cpu_s: float = 0.0
    #: Of the whole machine, so kernel threads that write back are in it.
    machine_cpu_s: float = 0.0
    #: Of the server when it was done, less what it was before: `resident_bytes`, `pss_bytes`, and
    #: `disk_bytes`; and what else belongs to the work.
    more: dict[str, float] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Messages (or units, or calls) a second."""
        count: int = self.timed["count"]
        seconds: float = self.timed["seconds"]
        return count / seconds

    def document(self) -> dict[str, Any]:
        return asdict(self)


def sample_of(document: dict[str, Any]) -> Sample:
    """Inverse of `document`."""
    return Sample(**document)
