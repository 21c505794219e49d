"""A goal: what a figure is to reach, and why.

A goal is written once, beside the workload that measures it; the report of a run carries the goals
of what it measured.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound of one figure of one workload."""

    work: str
    bound: float
    reason: str
    figure: str = "rate"
    at_most: bool = False
    #: The system whose figure is multiplied by the bound; "" for a number, or for `of_work` alone.
    of: str = ""
    #: The workload that is compared with; "" for the same one.
    of_work: str = ""
    #: The system that is to reach it; "" for ours.
    system: str = ""

    @property
    def is_multiple(self) -> bool:
        return bool(self.of or self.of_work)
