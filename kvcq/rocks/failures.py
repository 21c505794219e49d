"""What went wrong, told from the text of the binding's errors: it raises plain Exceptions."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from kvcq.errors import (
    EngineBusyError,
    EngineDamagedError,
    EngineFailedError,
    EngineFullError,
    EngineUnavailableError,
    KvcqError,
)

if TYPE_CHECKING:
    from pathlib import Path

#: RocksDB's answer to a write that would have to wait (WriteOptions.no_slowdown).
_STALL = "Result incomplete: Write stall"

#: A full disk, in the words of the system. RocksDB keeps the error of its background work, and
#: tells it to every write until it has resumed: it looks for room by itself.
_FULL = tuple(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT))
#: A sync that failed is final, whatever the reason: the kernel may have dropped the pages.
_SYNC_FAILED = ("While fsync", "While fdatasync", "While sync")
#: What a write-ahead log says after an append that failed.
_LOG_FAILED = ("Writer has previous error", "Seen error")

#: What keeps a sound database from being opened, in the words of the system, in which the binding's
#: errors end; and what RocksDB says of one that this process has open.
_NOT_DAMAGE = (
    *(
        os.strerror(number)
        for number in (
            errno.ENOSPC,
            errno.EDQUOT,
            errno.EMFILE,
            errno.ENFILE,
            errno.ENOMEM,
            errno.EACCES,
            errno.EPERM,
            errno.EROFS,
            errno.EAGAIN,
            errno.ENOLCK,
        )
    ),
    "lock hold by current process",
)


#: A read finds no file descriptor left: that passes when others are closed. One that a flush does
#: not find leaves a background error in the database, and is none of these.
_READING = "While open a file for random read"
_NO_DESCRIPTOR = (os.strerror(errno.EMFILE), os.strerror(errno.ENFILE))


def is_stall(error: Exception) -> bool:
    """Whether a write was refused because it would have had to wait."""
    return str(error).startswith(_STALL)


def is_full(error: Exception) -> bool:
    """Whether a write was refused because the disk is full."""
    text = str(error)
    return any(each in text for each in _FULL) and not any(each in text for each in _SYNC_FAILED)


def is_log_failed(error: Exception) -> bool:
    """Whether an earlier append to the write-ahead log failed, and this call for that reason."""
    return any(each in str(error) for each in _LOG_FAILED)


def failure(doing: str, error: Exception) -> KvcqError:
    """What to raise when `error` ended what is named `doing`."""
    if is_stall(error):
        return EngineBusyError(f"{doing}: RocksDB stalls writes")
    if _READING in str(error) and any(each in str(error) for each in _NO_DESCRIPTOR):
        return EngineBusyError(f"{doing}: {error}")
    if is_full(error):
        return EngineFullError(f"{doing}: the disk is full ({error})")
    if "Corruption" in str(error):
        return EngineDamagedError(f"{doing}: {error!r}")
    return EngineFailedError(f"{doing}: {error!r}")


def opening_failure(path: Path, text: str) -> KvcqError:
    """What to raise when the database at `path` could not be opened, `text` says why."""
    is_damage = not any(each in text for each in _NOT_DAMAGE)
    kind = EngineFailedError if is_damage else EngineUnavailableError
    return kind(f"cannot open {path}: {text}")


def damage_mark(path: Path) -> Path:
    """The file that says: damage was met in the database at `path`."""
    return path.with_name(f"{path.name}.damaged")
