"""What the migration side raises; `server/wire/status.py` has a row for each leaf."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.errors import DamagedQueueError, InvalidArgumentError, StoreError, StoreFormatError
from store.light_queue import is_light

if TYPE_CHECKING:
    from pathlib import Path

    from migration.next_step import NextStep


class UnitConflictError(DamagedQueueError):
    """The queue holds another unit where this one belongs. Nothing was written."""


class QueueFileError(DamagedQueueError):
    """A file of the queue cannot be one: its size or its place among the others is wrong."""

    def __init__(
        self, topic: str, queue_id: int, offset: int, path: str, position: int, reason: str
    ) -> None:
        super().__init__(topic, queue_id, offset, f"{path}, position {position}: {reason}")
        self.path = path
        self.position = position


class QueueNameError(InvalidArgumentError):
    """A topic or light queue whose name cannot be the name of a directory."""

    def __init__(self, name: str, reason: str) -> None:
        field = "light queue" if is_light(name) else "topic"
        super().__init__(field, f"{name!r} cannot be kept in files: {reason}")
        self.name = name


class IndexFileError(StoreFormatError):
    """An index file cannot be one: remove it, or have the index rebuilt from the log."""

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
        # On a running store.
        self.next_command = next_step.command(None)
        self.hint = next_step.sentence(None)


class MigrationStateError(StoreFormatError):
    """migration.json is damaged, of a newer version, or does not fit what is in the directory."""


class VerificationError(StoreError):
    """A verification broke off because a side cannot be read: nothing is said of the rest."""

    def __init__(self, side: str, reason: str) -> None:
        super().__init__(f"the {side} side cannot be read: {reason}")
        self.side = side
        self.reason = reason


class JobCancelledError(StoreError):
    """The job ended because it was told to; it can be started again."""


class UnknownJobError(StoreError):
    """No job of that id in this process."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"no job {job_id!r}")
        self.job_id = job_id


class LogDamageError(StoreFormatError):
    """A record in the middle of a log to be taken over does not verify: others follow it."""
