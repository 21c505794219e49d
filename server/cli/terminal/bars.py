"""Progress bars."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.cli.terminal.output import notes
from server.cli.terminal.screen import escape

if TYPE_CHECKING:
    from typing import Self

    from rich.progress import Progress, ProgressColumn, TaskID


class Bars:
    """A bar for each step, removed at the end. Nothing if the output is not a terminal."""

    def __init__(self, *columns: ProgressColumn, quiet: bool = False) -> None:
        """`columns`: shown behind the percentage; by default the remaining time. `quiet`: no
        bars."""
        self._columns = columns
        self._quiet = quiet or not notes.is_terminal
        self._progress: Progress | None = None
        self._steps: dict[str, TaskID] = {}

    def show(self, step: str, share: float | None, remark: str = "") -> None:
        """Show the step's progress, 0 to 1; None: unknown. Its bar appears at the first call."""
        if self._quiet:
            return
        if self._progress is None:
            self._progress = self._new_progress()
            self._progress.start()
        total = None if share is None else 1.0
        if step not in self._steps:
            self._steps[step] = self._progress.add_task(escape(step), total=total, remark=remark)
        self._progress.update(self._steps[step], completed=share, total=total, remark=remark)

    def _new_progress(self) -> Progress:
        # Imported here, because it takes as long as all the rest of the command line.
        from rich import progress

        named = (
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.TaskProgressColumn(),
        )
        columns = self._columns or (progress.TimeRemainingColumn(),)
        return progress.Progress(*named, *columns, console=notes, transient=True)

    def rest(self) -> None:
        """Remove the bars from the screen until the next `show`. Repeatable."""
        if self._progress is not None:
            self._progress.stop()
        self._progress = None
        self._steps.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.rest()
