"""The interface of a kind of job: its name, and the work for a request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from migration.jobs import Job, Outcome

#: Runs on a thread of the job. Its exception becomes the job's error.
Work = Callable[[Job], Outcome]


class Kind(Protocol):
    """A kind of job."""

    @property
    def name(self) -> str:
        """The kind's field in StartJobRequest."""
        ...

    @property
    def unit(self) -> str:
        """The unit of progress, such as "bytes"."""
        ...

    def work(self, wanted: Any) -> Work:  # noqa: ANN401 - the message of that field
        """The work of a job for the request `wanted`. Does not start it; may read the store.

        Raises InvalidArgumentError, naming the field, UnknownTopicError, UnknownQueueError.
        """
        ...
