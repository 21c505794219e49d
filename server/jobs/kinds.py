"""What a kind of job is to the rest: a name, and how work is made of what was asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from migration.jobs import Job, Outcome

#: Runs on a thread of the job. What it raises becomes the job's error.
Work = Callable[[Job], Outcome]


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
