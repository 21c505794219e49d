"""Classifies the binding's errors by their text, since it only raises plain Exceptions."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from kvcq.errors import (
    EngineBusyError,
    EngineDamagedError,
    EngineFailedError,
    EngineFullError,
    EngineNewerError,
    EngineOutOfDescriptorsError,
    EngineUnavailableError,
    KvcqError,
)

if TYPE_CHECKING:
    from pathlib import Path

#: RocksDB's answer to a write that would have to wait (WriteOptions.no_slowdown).
_STALL = "Result incomplete: Write stall"

#: The system's messages for lacking space or descriptors. RocksDB keeps the error of its background
#: work, and returns it for every write until it has resumed, which it tries on its own.
_LACKS: dict[str, type[EngineFullError] | type[EngineOutOfDescriptorsError]] = {
    os.strerror(errno.ENOSPC): EngineFullError,
    os.strerror(errno.EDQUOT): EngineFullError,
    os.strerror(errno.EMFILE): EngineOutOfDescriptorsError,
    os.strerror(errno.ENFILE): EngineOutOfDescriptorsError,
}
#: A sync that failed is final, whatever the reason: the kernel may have dropped the pages.
_SYNC_FAILED = ("While fsync", "While fdatasync", "While sync")

#: RocksDB's message for a database with families that the caller did not name; their names follow.
_UNKNOWN_FAMILIES = "Column families not opened: "

#: The system's messages for reasons that keep an intact database from being opened; the binding's
#: errors end with them. And RocksDB's message for one that this process has open.
_NOT_DAMAGE = (
    *_LACKS,
    *(
        os.strerror(number)
        for number in (
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


def is_stall(error: Exception) -> bool:
    """Whether a write was rejected because it would have had to wait."""
    return str(error).startswith(_STALL)


def shortage(
    error: Exception,
) -> type[EngineFullError] | type[EngineOutOfDescriptorsError] | None:
    """The error for a lack of space or descriptors; None for other reasons."""
    text = str(error)
    if any(each in text for each in _SYNC_FAILED):
        return None
    return next((kind for words, kind in _LACKS.items() if words in text), None)


def failure(doing: str, error: Exception) -> KvcqError:
    """The error to raise when `error` ended the operation named `doing`."""
    if is_stall(error):
        return EngineBusyError(f"{doing}: RocksDB stalls writes")
    kind = shortage(error)
    if kind is not None:
        return kind(f"{doing}: {error}")
    if "Corruption" in str(error):
        return EngineDamagedError(f"{doing}: {error!r}")
    return EngineFailedError(f"{doing}: {error!r}")


def opening_failure(path: Path, text: str) -> KvcqError:
    """The error to raise when the database at `path` could not be opened; `text` is the reason."""
    _, is_newer, unknown = text.partition(_UNKNOWN_FAMILIES)
    if is_newer:
        return EngineNewerError(
            f"cannot open {path}: this program does not know its column families {unknown}. A "
            "newer version wrote it: use that program. Nothing was changed"
        )
    is_damage = not any(each in text for each in _NOT_DAMAGE)
    kind = EngineFailedError if is_damage else EngineUnavailableError
    return kind(f"cannot open {path}: {text}")


def damage_mark(path: Path) -> Path:
    """The marker file for damage found in the database at `path`."""
    return path.with_name(f"{path.name}.damaged")
