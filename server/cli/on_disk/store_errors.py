"""Turns errors of a stopped store into errors of the command line, with the next step."""

from __future__ import annotations

import shlex
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from migration.errors import IllegalStepError
from migration.next_step import NextStep
from migration.state import has_migration
from server.cli.terminal import BadRequestError, CommandError
from server.errors import ServerError
from server.wire import row_of
from store.errors import (
    DamagedLogError,
    InvalidArgumentError,
    StoreError,
    StoreFormatError,
    StoreLockedError,
)
from store.store_dir import DirKind, inspect

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STOP = "stop its server first, then repeat the command"


@contextmanager
def raising_command_errors(directory: Path, *, locked: str = STOP) -> Iterator[None]:
    """Turn errors of the block, a command on the store in `directory`, into CommandError. `locked`:
    the next step if a server has the store open."""
    try:
        yield
    except IllegalStepError as error:
        step = error.next_step
        raise CommandError(
            str(error), step.sentence(directory), command=step.command(directory), code=_code(error)
        ) from error
    except InvalidArgumentError as error:
        raise BadRequestError(str(error), field=error.field) from error
    except StoreError as error:
        raise unusable(error, directory, locked=locked) from error
    except BrokenPipeError:  # the reader of the output has gone
        raise
    except OSError as error:
        text = f"{error.filename or directory}: {error.strerror or error}"
        raise CommandError(text) from error


def unusable(
    error: StoreError, directory: Path, what: str = "", *, locked: str = STOP
) -> CommandError:
    """The error with the prefix `what`, and the next step unless its text says it."""
    text, code = f"{what}{error}", _code(error)
    check = shlex.join(["kvcq", "check", str(directory)])
    if isinstance(error, StoreFormatError):
        hint, command = (None, None) if what else _whose(directory)
        return CommandError(text, hint, command=command, code=code)
    if isinstance(error, ServerError):
        return CommandError(text, code=code)
    if isinstance(error, StoreLockedError):
        return CommandError(text, locked, code=code)
    if isinstance(error, DamagedLogError):
        hint = "restore the segment from a replica or a backup"
        leave_out = leave_out_command(directory) if error.can_be_left_out else None
        if leave_out is not None:
            hint += ". To continue without the damaged message, the command rebuilds the queues"
        return CommandError(text, hint, command=leave_out or check, code=code)
    return CommandError(text, command=check, code=code)


def _whose(directory: Path) -> tuple[str | None, str | None]:
    """Hint and command for a directory that RocketMQ wrote, or that is no store."""
    with suppress(StoreFormatError):  # a kvcq store; its error says what to do
        kind = inspect(directory)[0]
        if kind is DirKind.ROCKETMQ:
            return "RocketMQ wrote this store", NextStep("plan").command(directory)
        if kind is not DirKind.OURS:
            return (
                "is this the directory that `kvcq serve --data` names, or a broker's "
                "storePathRootDir, with commitlog/ in it?"
            ), None
    return None, None


def leave_out_command(directory: Path) -> str | None:
    """The command that rebuilds the queues without damaged records; None if a migration manages
    them."""
    if has_migration(directory):
        return None
    return shlex.join(["kvcq", "repair", str(directory), "--queues", "--skip-damaged"])


def _code(error: StoreError) -> str:
    """The reason that the service has for this error."""
    row = row_of(error)
    return "" if row is None else row.reason
