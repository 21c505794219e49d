"""What a kind of job is to the rest: a name, and how work is made of what was asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kvcq.inspect import Finding


class Outcome(NamedTuple):
    """What came of a job that is done."""

    summary: str  # one sentence
    numbers: Mapping[str, int]  # by name in snake_case, units in the names
    findings: Sequence[Finding] = ()


class Running(Protocol):
    """What the work is given: where it says how far it is, and hears that it is to end."""

    def step(self, name: str, done: int, total: int) -> None:
        """Another step begins: estimates start anew."""
        ...

    def report(self, done: int, total: int) -> None:
        """The step has come so far, in the kind's unit."""
        ...

    def check(self) -> None:
        """Raises JobCancelledError once the job is to end; to be called several times a second."""
        ...

    def pause(self, seconds: float) -> None:
        """Wait, but not beyond a cancellation. Raises JobCancelledError."""
        ...


#: Runs on a thread of the job. What it raises becomes the job's error.
Work = Callable[[Running], Outcome]


class Kind(Protocol):
    """A kind of job."""

    @property
    def name(self) -> str:
        """The field of StartJobRequest that asks for one."""
        ...

    @property
    def unit(self) -> str:
        """What progress counts, such as "bytes"."""
        ...

    def work(self, wanted: Any) -> Work:  # noqa: ANN401 - the message of that field
        """What a job does that was asked for so. Begins nothing; may read.

        Raises InvalidArgumentError, naming the field, UnknownTopicError, UnknownQueueError.
        """
        ...
