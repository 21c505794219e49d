"""kvcq migrate ingest: hand sorted files over to a running store."""

from __future__ import annotations

import json
import shutil
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

import click

from kvcq_client import SortedFile
from server.cli.migration.on_store import existing_directory
from server.cli.online import connect, server_options
from server.cli.terminal import CommandError, print_json, say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcq_client import Client

_MANIFEST = "manifest.json"
#: Long, because the server copies the files during the call.
_TIMEOUT_S = 3600.0


@click.command()
@click.argument("directory", type=existing_directory)
@server_options
def ingest(directory: Path, server: str, as_json: bool) -> None:
    """Ingest the sorted files in DIRECTORY into a running store, as its history in RocksDB.

    `kvcq spark rebuild --output DIRECTORY` writes such files. They must start where RocksDB ends,
    end in the flushed log, and be on the server's machine. They are copied; repeating the command
    does no harm.
    """
    manifest = _manifest(directory)
    with (
        connect(server) as client,
        _reachable(directory.resolve(), _ingest_directory(client)) as below,
    ):
        answer = client.migration.ingest(
            [replace(one, path=str(PurePosixPath(below, one.path))) for one in manifest.files],
            start_offset=manifest.start_offset,
            dispatched_offset=manifest.dispatched_offset,
            timeout_s=_TIMEOUT_S,
        )
    if as_json:
        document = {"ingested": answer.ingested, "dispatchedOffset": answer.dispatched_offset}
        print_json(document)
        return
    done = "ingested" if answer.ingested else "not needed: RocksDB already had all of it"
    place = f"RocksDB is now dispatched up to physical offset {answer.dispatched_offset:,}"
    say(f"{done}. {place}")


@contextmanager
def _reachable(directory: Path, taken: Path) -> Iterator[str]:
    """The directory of the files, below the directory `taken` that the server accepts files from.

    Files in another place are linked or copied there until the block ends.
    """
    if directory.is_relative_to(taken):
        yield directory.relative_to(taken).as_posix()
        return
    if not taken.parent.is_dir():
        raise CommandError(
            f"{taken}: the server's ingest directory is not on this machine",
            "run this where the server runs",
        )
    place = taken / uuid4().hex
    try:
        try:
            place.mkdir(parents=True, mode=0o700)
            for path in directory.iterdir():
                _link(path, place / path.name)
        except OSError as error:
            raise CommandError(
                f"{place}: cannot be created: {error.strerror or error}",
                f"move the files below {taken}, the server's ingest directory",
            ) from error
        yield place.name
    finally:
        shutil.rmtree(place, ignore_errors=True)
        with suppress(OSError):
            taken.rmdir()  # fails if it has other files


def _ingest_directory(client: Client) -> Path:
    found = client.migration.status().ingest_directory
    assert found is not None, "a server says where it takes files from"
    return Path(found)


def _link(path: Path, target: Path) -> None:
    if not path.is_file():
        return
    try:
        target.hardlink_to(path)
    except OSError:  # another file system
        shutil.copyfile(path, target)


class _Manifest(NamedTuple):
    """The parsed manifest; see `AsyncMigration.ingest`."""

    files: list[SortedFile]
    start_offset: int
    dispatched_offset: int


def _manifest(directory: Path) -> _Manifest:
    """Parse the manifest. Raises CommandError."""
    path = directory / _MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        return _Manifest(
            [
                # Only the file's name, because the directory may have been moved.
                SortedFile(Path(name).name, family)
                for family, names in manifest["files"].items()
                for name in names
            ],
            manifest["log_start"],
            manifest["log_end"],
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        why = error.strerror if isinstance(error, OSError) else repr(error)
        hint = "create the files with `kvcq spark rebuild` and --output, --begin and --end"
        raise CommandError(f"{path} is not a valid manifest: {why}", hint) from error
