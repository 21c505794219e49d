"""Bars that tell how far a long piece of work is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from server.cli.terminal.output import notes

if TYPE_CHECKING:
    from rich.progress import TaskID


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
        self._steps: dict[str, TaskID] = {}

    def show(self, step: str, share: float) -> None:
        """How far the step is, 0 to 1; its bar is there from the first time on."""
        if step not in self._steps:
            self._steps[step] = self.add_task(step, total=1.0)
        self.update(self._steps[step], completed=share)
