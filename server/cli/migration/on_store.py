"""What each command has in common: the store that it works on, a progress bar, and --json."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from server.cli.migration.local import local_target
from server.cli.migration.remote import remote_target
from server.cli.online import server_options
from server.cli.terminal import notes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.progress import TaskID

    from server.cli.migration.local import LocalTarget
    from server.cli.migration.remote import RemoteTarget

existing_directory = click.Path(exists=True, file_okay=False, path_type=Path)


class Watcher:
    """A progress bar that is there from the first thing that takes time on."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._progress: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, step: str, share: float, remark: str) -> None:
        if self._quiet:
            return
        if self._progress is None:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f} %"),
                TimeElapsedColumn(),
                TextColumn("{task.fields[remark]}"),
            )
            self._progress = Progress(
                *columns, console=notes, transient=True, disable=not notes.is_terminal
            )
            self._progress.start()
        if step not in self._tasks:
            self._tasks[step] = self._progress.add_task(step, total=1.0, remark=remark)
        self._progress.update(self._tasks[step], completed=share, remark=remark)

    def rest(self) -> None:
        """Off the screen, until there is something to show again. Repeatable."""
        if self._progress is not None:
            self._progress.stop()
        self._progress = None
        self._tasks.clear()


@dataclass(frozen=True)
class OnStore:
    """What a command works on, and how it tells what happens."""

    target: LocalTarget | RemoteTarget
    watch: Watcher
    directory: Path | None  # None: a running store
    as_json: bool


@contextmanager
def opened(directory: Path | None, server: str, *, as_json: bool) -> Iterator[OnStore]:
    """The target for the length of a command. Raises CommandError."""
    watch = Watcher(quiet=as_json)
    try:
        if directory is None:
            with remote_target(server, watch) as running:
                yield OnStore(running, watch, directory, as_json)
        else:
            with local_target(directory, watch) as stopped:
                yield OnStore(stopped, watch, directory, as_json)
    finally:
        watch.rest()


def on_store(command: Callable[..., None]) -> Callable[..., None]:
    """DIRECTORY, --server and --json, handed over as one `OnStore`."""

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
