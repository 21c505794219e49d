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
    #: The bound is a multiple of this system's figure; "" for a number, or with only `of_work`.
    of: str = ""
    #: The bound is a multiple of the figure of this workload; "" for the same workload.
    of_work: str = ""
    #: The system that should reach the bound; "" for ours.
    system: str = ""

    @property
    def is_multiple(self) -> bool:
        return bool(self.of or self.of_work)
