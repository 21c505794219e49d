"""What to do about a store on disk that cannot be opened."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from migration.state import has_migration
from server.cli.terminal import CommandError
from store.errors import DamagedLogError, StoreFormatError

if TYPE_CHECKING:
    from pathlib import Path

    from store.errors import StoreError


def leave_out_command(directory: Path) -> str | None:
    """Rebuilds the queues without what is damaged in the log; None where a migration has them."""
    if has_migration(directory):
        return None
    return shlex.join(["kvcq", "repair", str(directory), "--queues", "--skip-damaged"])


def unreadable(error: OSError, directory: Path) -> CommandError:
    """The error of a file of the store, by its name if it is known."""
    return CommandError(f"{error.filename or directory}: {error.strerror}")


def unusable(error: StoreError, directory: Path, what: str = "") -> CommandError:
    """The error behind the words `what`, and what to do where its text does not say so itself."""
    text = f"{what}{error}"
    if isinstance(error, StoreFormatError):
        return CommandError(text)
    check = shlex.join(["kvcq", "check", str(directory)])
    if isinstance(error, DamagedLogError):
        hint = "bring the segment back from a replica or a backup"
        leave_out = leave_out_command(directory) if error.can_be_left_out else None
        if leave_out is not None:
            hint += ". To go on without the damaged message, the command rebuilds the queues"
        return CommandError(text, hint, command=leave_out or check)
    return CommandError(text, command=check)
