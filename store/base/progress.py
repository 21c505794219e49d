"""How long-running work reports its current step and how much of it is done."""

from __future__ import annotations

from collections.abc import Callable

#: Called with the current step, and the fraction done, from 0 to 1.
Progress = Callable[[str, float], None]


def no_progress(_step: str, _share: float) -> None:
    """A Progress that ignores all reports."""
