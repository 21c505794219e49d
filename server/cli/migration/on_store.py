"""What all commands share: the store, a progress bar, and --json."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.progress import TextColumn, TimeElapsedColumn

from server.cli.migration.local import local_target
from server.cli.migration.remote import remote_target
from server.cli.online import server_options
from server.cli.terminal import Bars

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from server.cli.migration.local import LocalTarget
    from server.cli.migration.remote import RemoteTarget

existing_directory = click.Path(exists=True, file_okay=False, path_type=Path)


@dataclass(frozen=True)
class OnStore:
    """The store that a command works on, and its output."""

    target: LocalTarget | RemoteTarget
    bars: Bars
    directory: Path | None  # None: a running store
    as_json: bool


@contextmanager
def opened(directory: Path | None, server: str, *, as_json: bool) -> Iterator[OnStore]:
    """Open the store for one command. Raises CommandError."""
    columns = TimeElapsedColumn(), TextColumn("{task.fields[remark]}")
    with Bars(*columns, quiet=as_json) as bars:
        if directory is None:
            with remote_target(server, bars.show) as running:
                yield OnStore(running, bars, directory, as_json)
        else:
            with local_target(directory, bars.show) as stopped:
                yield OnStore(stopped, bars, directory, as_json)


def on_store(command: Callable[..., None]) -> Callable[..., None]:
    """Adds DIRECTORY, --server and --json, which the command gets as one `OnStore`."""

    @wraps(command)
    def run(
        *,
        directory: Path | None,
        server: str,
        as_json: bool,
        **others: Any,  # noqa: ANN401 - the options of the command
    ) -> None:
        with opened(directory, server, as_json=as_json) as on:
            command(on, **others)

    argument = click.argument("directory", required=False, type=existing_directory)
    return argument(server_options(run))
