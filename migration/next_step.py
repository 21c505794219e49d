"""The next step for an operator, as a value that callers turn into a command."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class NextStep:
    """A step of `kvcq migrate`, a sentence, or both; neither if there is nothing to do."""

    step: str = ""
    options: tuple[str, ...] = ()
    #: A sentence of its own, never a command.
    hint: str = ""
    #: The step is possible only while no service has the store open.
    stopped_only: bool = False

    def command(self, root: Path | None) -> str | None:
        """The command for a shell. `root`: directory of a stopped store; None for a running one.

        None if there is no command, or if the service has to be stopped first.
        """
        if not self.step or (self.stopped_only and root is None):
            return None
        place = [] if root is None else [str(root)]
        return shlex.join(["kvcq", "migrate", self.step, *place, *self.options])

    def sentence(self, root: Path | None) -> str | None:
        """The hint, including a step for which the service must be stopped first."""
        if not self.step or not self.stopped_only or root is not None:
            return self.hint or None
        step = " ".join((self.step, "DIRECTORY", *self.options))
        stopping = f"stop the service, then run `kvcq migrate {step}` on its directory"
        return f"{stopping}; {self.hint}" if self.hint else stopping


#: For a store that never had file queues.
NO_MIGRATION = NextStep(hint="this store has no migration: there is nothing to do")
