"""Places for backups: a directory, or an S3-compatible bucket."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kvcq.backup.bucket import SCHEMES, Bucket
from kvcq.backup.directory import Directory
from kvcq.backup.manifest import MARKER
from kvcq.errors import BackupRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Place(Protocol):
    """Files by name; a name may have slashes. Thread: one.

    Raises BackupTargetError if the place cannot be read or written.
    """

    @property
    def url(self) -> str:
        """The path or URL as the user gave it."""
        ...

    @property
    def names_first(self) -> bool:
        """Whether a file needs its name before its content is written."""
        ...

    def sizes(self, prefix: str) -> dict[str, int]:
        """Names with that prefix, and their sizes in bytes; without unfinished files."""
        ...

    def read(self, name: str) -> Iterator[bytes]:
        """The content, in pieces. Raises BackupDamagedError if there is no such file."""
        ...

    def put(
        self,
        stem: str,
        source: Path,
        size: int,
        tell: Callable[[bytes], None],
        name: Callable[[], str],
    ) -> None:
        """Store the first `size` bytes of `source` as `name()`, durably: all or nothing.

        `tell` is called with each piece. `name` is called after all of them, unless `names_first`;
        until then the file may be visible under a temporary name that begins with `stem`. If `tell`
        raises, the copy stops. Raises FileNotFoundError if there is no source.
        """
        ...

    def put_bytes(self, name: str, data: bytes) -> None:
        """Like `put`, for bytes."""
        ...

    def remove(self, name: str) -> None:
        """Remove the file, durably. Repeatable."""
        ...

    def unfinished(self, prefix: str) -> list[str]:
        """Names with that prefix of files that are being written, or were when their process was
        killed."""
        ...

    def link(self, name: str, source: Path) -> bool:
        """Hard-link the file under that name; False if that is not possible."""
        ...


def keeps_backups(path: str) -> bool:
    """Whether the path or URL is a place of backups, and not a store or its log. A bucket always
    is. Only accesses the local disk."""
    scheme, separator, _ = path.partition("://")
    if separator and scheme != "file":
        return scheme in SCHEMES
    return Path(path.removeprefix("file://"), MARKER).is_file()


def open_place(url: str, *, make: bool = False) -> Place:
    """The place of a path or URL. `make`: whether it may be created.

    Raises BackupRefusedError for an unknown kind, or a library that is not installed;
    BackupTargetError.
    """
    scheme, separator, _ = url.partition("://")
    if separator and scheme in SCHEMES:
        return Bucket(url)
    if separator and scheme != "file":
        known = ", ".join(f"{each}://" for each in sorted(SCHEMES))
        raise BackupRefusedError(
            f"{url}: {scheme}:// is not supported. Name a directory, or use {known}"
        )
    return Directory(Path(url.removeprefix("file://")).expanduser(), make=make)
