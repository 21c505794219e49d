"""Opens the users of an open or stopped store."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from server.access.secrets import Vault
from server.access.users import Users
from server.errors import KeyFileError
from store.base import SystemClock
from store.config import StoreConfig
from store.errors import InvalidArgumentError, StoreFormatError
from store.notes import USERS_NOTE
from store.store_dir import FORMAT_VERSION, DirKind, StoreDir, inspect

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from store.notes import Notes


def key_file_of(data_dir: Path) -> Path:
    """The default path of the key file for secrets: beside the store, not in it."""
    directory = data_dir.absolute()
    return directory.with_name(f"{directory.name}.key")


def open_users(notes: Notes, data_dir: Path, key_file: Path | None) -> Users:
    """Load the users of a server that authenticates its callers. Blocks.

    Raises InvalidArgumentError while there is no administrator, KeyFileError, CorruptValueError.
    """
    users = Users(notes, _vault_of(notes, key_file or key_file_of(data_dir)), SystemClock())
    if not users.has_admin:
        raise _without_administrator(data_dir, key_file)
    return users


def refuse_new_store(data_dir: Path, key_file: Path | None) -> None:
    """Raise what `open_users` would raise for a store that does not exist yet, before it is
    created."""
    with suppress(StoreFormatError):  # opening it reports the error
        if inspect(data_dir)[0] is DirKind.BLANK:
            raise _without_administrator(data_dir, key_file)


def _without_administrator(data_dir: Path, key_file: Path | None) -> InvalidArgumentError:
    key = "" if key_file is None else f" --key-file {key_file}"
    return InvalidArgumentError(
        "server.access",
        "the store has no administrator yet. Create one first: kvcq user add admin --admin "
        f"--data {data_dir}{key}",
    )


def key_to_bring(data_dir: Path) -> Path | None:
    """The key file that sealed the users' secrets of a closed store; None if it has no users.
    Blocks, and changes nothing. Raises StoreFormatError."""
    return key_file_of(data_dir) if has_users(StoreDir(data_dir).notes) else None


def has_users(notes: Notes) -> bool:
    """Whether the store has users."""
    return (notes.get(USERS_NOTE) or b"{}") != b"{}"


@contextmanager
def users_of_stopped_store(
    data_dir: Path, key_file: Path | None, segment_bytes: int | None = None
) -> Iterator[Users]:
    """The users of a stopped store, for example to add the first administrator. Locks the store,
    and creates it with that segment size if there is none.

    Raises StoreLockedError, StoreFormatError, KeyFileError, CorruptValueError.
    """
    _, identity = inspect(data_dir)
    if identity is not None:
        segment_bytes = identity.segment_bytes
    elif segment_bytes is None:
        segment_bytes = StoreConfig(root=data_dir).segment_bytes
    clock = SystemClock()
    directory = StoreDir.open(data_dir, segment_bytes, clock)
    try:
        if directory.format_version < FORMAT_VERSION:
            raise StoreFormatError(
                data_dir, "has an older format, which `kvcq serve` upgrades: start and stop it once"
            )
        notes = directory.notes
        yield Users(notes, _vault_of(notes, key_file or key_file_of(data_dir)), clock)
    finally:
        directory.close()


def _vault_of(notes: Notes, key_file: Path) -> Vault:
    """Create a new key only for a store without users: beside a restored or moved store a new key
    could open nothing, and would be taken for the right one."""
    if not key_file.exists() and has_users(notes):
        raise KeyFileError(
            key_file,
            "is missing, but the store has users: copy this store's key file there, or set "
            "server.key_file",
        )
    return Vault.open(key_file)
