"""Where backups are kept: a directory, or a bucket of S3 and its like."""

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
    """Files by name; a name has slashes. Thread: one.

    Raises BackupTargetError for whatever keeps it from being read or written.
    """

    @property
    def url(self) -> str:
        """As it was named."""
        ...

    @property
    def names_first(self) -> bool:
        """Whether a file must have its name before its content is there."""
        ...

    def sizes(self, prefix: str) -> dict[str, int]:
        """Names that begin so, and how long they are, bytes; a file that is being put is none."""
        ...

    def read(self, name: str) -> Iterator[bytes]:
        """The content, in pieces. Raises BackupDamagedError when there is none of that name."""
        ...

    def put(
        self,
        stem: str,
        source: Path,
        size: int,
        tell: Callable[[bytes], None],
        name: Callable[[], str],
    ) -> None:
        """The first `size` bytes of `source` are there as `name()`, durably: all of it or nothing.

        Each piece is told as it passes. `name` is asked when all have been, unless `names_first`;
        until then the file may be seen under a temporary name that begins with `stem`. An error
        that `tell` raises ends it. Raises FileNotFoundError when there is no source.
        """
        ...

    def put_bytes(self, name: str, data: bytes) -> None:
        """As `put`."""
        ...

    def remove(self, name: str) -> None:
        """There is no file of that name any more, durably."""
        ...

    def unfinished(self, prefix: str) -> list[str]:
        """Names that begin so, of files that are being put, or were when their process was
        killed."""
        ...

    def link(self, name: str, source: Path) -> bool:
        """The file itself under that name, without copying; False where that cannot be."""
        ...


def keeps_backups(path: str) -> bool:
    """Whether the path or URL names a place of backups, rather than a store or its log. A bucket
    does: a store is not in one. Asks the disk alone."""
    scheme, separator, _ = path.partition("://")
    if separator and scheme != "file":
        return scheme in SCHEMES
    return Path(path.removeprefix("file://"), MARKER).is_file()


def open_place(url: str, *, make: bool = False) -> Place:
    """The place that a path or a URL names. `make`: it may not be there yet.

    Raises BackupRefusedError for a kind that is not known, or a library that is not installed;
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
