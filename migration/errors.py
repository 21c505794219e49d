"""Errors of the migration; `server/wire/status.py` has a row for each leaf."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.errors import DamagedQueueError, InvalidArgumentError, StoreError, StoreFormatError
from store.light_queue import is_light

if TYPE_CHECKING:
    from pathlib import Path

    from migration.next_step import NextStep


class UnitConflictError(DamagedQueueError):
    """The queue has a different unit at this position. Nothing was written."""


class QueueFileError(DamagedQueueError):
    """A queue file has an invalid size or position."""

    def __init__(
        self, topic: str, queue_id: int, offset: int, path: str, position: int, reason: str
    ) -> None:
        super().__init__(topic, queue_id, offset, f"{path}, position {position}: {reason}")
        self.path = path
        self.position = position


class QueueNameError(InvalidArgumentError):
    """The name of a topic or light queue cannot be the name of a directory."""

    def __init__(self, name: str, reason: str) -> None:
        field = "light queue" if is_light(name) else "topic"
        super().__init__(field, f"{name!r} cannot be kept in files: {reason}")
        self.name = name


class IndexFileError(StoreFormatError):
    """An index file is invalid: remove it, or rebuild the index from the log."""

    def __init__(self, path: Path, position: int, reason: str) -> None:
        super().__init__(path, f"position {position}: {reason}")
        self.position = position


class IllegalStepError(StoreError):
    """The migration cannot take this step now. Nothing was changed."""

    def __init__(self, step: str, phase: str | None, reason: str, next_step: NextStep) -> None:
        """`phase`: None for a store without a migration."""
        state = "" if phase is None else f" in state {phase}"
        super().__init__(f"{step} is not possible{state}: {reason}")
        self.step = step
        self.phase = phase
        self.reason = reason
        self.next_step = next_step
        # The command for a running store.
        self.next_command = next_step.command(None)
        self.hint = next_step.sentence(None)


class MigrationStateError(StoreFormatError):
    """migration.json is damaged, from a newer version, or does not match the directory."""


class VerificationError(StoreError):
    """A verification was aborted, because a side cannot be read."""

    def __init__(self, side: str, reason: str) -> None:
        super().__init__(f"the {side} side cannot be read: {reason}")
        self.side = side
        self.reason = reason


class JobCancelledError(StoreError):
    """The job was cancelled; it can be started again."""


class UnknownJobError(StoreError):
    """No job with that id exists in this process."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"no job {job_id!r}")
        self.job_id = job_id


class LogDamageError(StoreFormatError):
    """The log to be taken over has a damaged record that is followed by others."""
