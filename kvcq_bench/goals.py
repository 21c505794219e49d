"""What the figures of the shipped scenarios are to reach at full scale, and whether they do."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Goal:
    """A bound of one figure of one scenario."""

    scenario: str  # its name
    figure: str  # regular expression of the whole name; of several, the last counts
    work: str
    unit: str
    bound: float
    at_most: bool = False

    @property
    def wanted(self) -> str:
        words = "at most" if self.at_most else "at least"
        return f"{words} {self.bound:,g} {self.unit}".rstrip()


@dataclass(frozen=True)
class Judged:
    """A goal, and what was measured."""

    scenario: str
    figure: str
    work: str
    value: float
    unit: str
    wanted: str
    met: bool

    def document(self) -> dict[str, Any]:
        return asdict(self)


GOALS = (
    Goal(
        "topics",
        r"first_messages_per_s \d+ topics",
        "first message to new topics",
        "messages/s",
        120_000,
    ),
    Goal(
        "topics",
        r"last_tenth_over_first \d+ topics",
        "last tenth of them, rate over that of the first",
        "",
        0.8,
    ),
    Goal(
        "topics",
        r"resident_growth_mb \d+ topics, restarted",
        "resident memory of the server with a million idle queues, above none",
        "MB",
        100,
        at_most=True,
    ),
    Goal(
        "topics",
        r"disk_bytes_a_queue \d+ topics, restarted",
        "disk of an idle topic with one unit",
        "B",
        150,
        at_most=True,
    ),
    Goal(
        "topics",
        r"ready_after_clean_stop_s \d+ topics",
        "ready after a clean stop, a million topics",
        "s",
        1,
        at_most=True,
    ),
    Goal(
        "light-queues",
        r"units_per_s fan-out 100",
        "light queues, 100 of a message",
        "units/s",
        500_000,
    ),
    Goal(
        "light-queues",
        r"resident_growth_mb \d+ light queues, restarted",
        "resident memory of the server with ten million idle queues, above none",
        "MB",
        200,
        at_most=True,
    ),
    Goal(
        "light-queues",
        r"disk_bytes_a_queue \d+ light queues, restarted",
        "disk of an idle light queue with one unit",
        "B",
        150,
        at_most=True,
    ),
    Goal(
        "light-queues",
        r"ready_after_clean_stop_s \d+ light queues",
        "ready after a clean stop, ten million light queues",
        "s",
        2,
        at_most=True,
    ),
    Goal(
        "cold-reads",
        r"put_rate_kept",
        "producers beside consumers that are 10 GB behind, share of their rate",
        "",
        0.8,
    ),
    Goal(
        "kill",
        r"ready_after_kill_s",
        "ready after kill -9 under full load",
        "s",
        10,
        at_most=True,
    ),
    Goal(
        "compaction",
        r"pull_p99_ratio",
        "p99 of a pull beside a compaction of everything, over that without",
        "",
        3,
        at_most=True,
    ),
)


def judge(document: Mapping[str, Any]) -> list[Judged]:
    """The goals of a report's scenario that it has figures for; none of a run at a smaller scale,
    for which they are not meant.
    """
    found: list[Judged] = []
    if document.get("scale", 1.0) < 1:
        return found
    for goal in GOALS:
        if goal.scenario != document["scenario"]:
            continue
        names = [name for name in document["figures"] if re.fullmatch(goal.figure, name)]
        if not names:
            continue
        value = document["figures"][names[-1]]
        met = value <= goal.bound if goal.at_most else value >= goal.bound
        found.append(
            Judged(goal.scenario, names[-1], goal.work, value, goal.unit, goal.wanted, met)
        )
    return found
