"""Bars that tell how far a long piece of work is."""

from __future__ import annotations

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from server.cli.terminal.output import notes


class Bars(Progress):
    """A bar for each step, on a terminal, gone at the end; elsewhere nothing."""

    def __init__(self) -> None:
        columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn()
        super().__init__(
            *columns,
            TimeRemainingColumn(),
            console=notes,
            transient=True,
            disable=not notes.is_terminal,
        )
