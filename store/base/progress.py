"""How a long piece of work tells what it does, and how much of that is done."""

from __future__ import annotations

from collections.abc import Callable

#: Called with what is being done, and how much of it, from 0 to 1.
Progress = Callable[[str, float], None]


def no_progress(_step: str, _share: float) -> None:
    """For nobody who listens."""
