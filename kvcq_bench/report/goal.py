"""Goals: the value that a figure should reach, and why.

A goal is defined once, beside the workload that measures it; the report of a run includes the goals
of its workloads.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound for one figure of one workload."""

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
