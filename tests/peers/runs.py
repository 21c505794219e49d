"""Ratios of kept runs, round by round: ours beside the peers in one run, and beside the limits and
the goals in each run that is kept.

On a machine that swings, a ratio of two rates that were measured a minute apart says more than
either, and one run says little: so the same ratio stands beside those of other days.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from tests.peers.goals import GOALS, gets_there, in_run
from tests.peers.spread import short, spread_if
from tests.peers.values import OURS, Durability
from tests.peers.works import WORKS, work_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.peers.goals import Goal, InRun
    from tests.peers.measured import Measured
    from tests.peers.spread import Spread
    from tests.peers.works import Work

#: The limits of the columns, the one that does most first: where it has no figure, the next.
_LIMITS = ("bare-stack-and-store", "bare-store", "bare-stack")
#: What tells how fast the machine was: the limit that does least.
_PROBE, _PROBE_WORK = "bare-stack", work_of(Durability.BEFORE_FSYNC, "put, batches of 128")
#: No peer by itself: another way into one.
_PROXY = "rocketmq-proxy"


def beside_peers(measured: Measured) -> str:
    """Our rates over those of each peer: what each round gives, whatever memory it had."""
    peers = [one for one in measured.systems if one not in (OURS, _PROXY, *measured.limits)]
    lines = [_line("kvcq beside", map(measured.title, peers)), _rule(len(peers))]
    for durability, name, works in _by_name():
        cells = [_text(_ratios(measured, durability, works, peer)) for peer in peers]
        if any(cells):
            lines.append(_line(_title(durability, name), [cell or "-" for cell in cells]))
    return "\n".join(lines)


def beside_limits(runs: Sequence[Measured]) -> str:
    """Our rates over those of the nearest limit, a column for each run. The first row says how fast
    the machine was."""
    runs = sorted(runs, key=_time)
    lines = [_line("ours over the limit", map(_when, runs)), _rule(len(runs))]
    title = f"*{runs[-1].title(_PROBE)}: {_PROBE_WORK.name}, {_PROBE_WORK.unit}*"
    lines.append(_line(title, map(_probe, runs)))
    for durability, name, works in _by_name():
        for limit in _LIMITS:
            cells = [_text(_ratios(run, durability, works, limit)) for run in runs]
            if any(cells):
                title = f"{_title(durability, name)}: of {runs[-1].title(limit)}"
                lines.append(_line(title, [cell or "-" for cell in cells]))
                break
    return "\n".join(lines)


def goals_in_runs(runs: Sequence[Measured]) -> str:
    """Each goal in each run: the median of ours, and that of the limit that does most; how many
    runs have it met, and in how many the limit gets there."""
    runs = sorted(runs, key=_time)
    head = ["met in", "the limit gets there in", *map(_when, runs)]
    lines = [_line("goal: ours, and the limit", head), _rule(len(head))]
    for goal in GOALS:
        found = [in_run(goal, run, _LIMITS) for run in runs]
        there = [one for one in found if one is not None]
        if not there:
            continue
        limits = [one.limit for one in there if one.limit is not None]
        counts = [
            f"{sum(gets_there(goal, one.ours) for one in there)} of {len(there)}",
            f"{sum(gets_there(goal, one) for one in limits)} of {len(limits)}" if limits else "-",
        ]
        lines.append(_line(_words(goal, runs[-1]), [*counts, *map(_medians, found)]))
    return "\n".join(lines)


def _words(goal: Goal, run: Measured) -> str:
    figure = goal.figure.name or work_of(goal.durability, goal.work).unit
    wanted = goal.wanted(" or ".join(map(run.title, goal.of)))
    return f"{_title(goal.durability, goal.work)}, {figure}: {wanted}"


def _medians(found: InRun | None) -> str:
    if found is None:
        return "-"
    return short(found.ours) + ("" if found.limit is None else f", {short(found.limit)}")


def _by_name() -> Iterable[tuple[Durability, str, list[Work]]]:
    """The works that a client does; those of one name differ in what memory they have."""
    for durability, works in WORKS.items():
        by_name: dict[str, list[Work]] = {}
        for work in works:
            if work.method:
                by_name.setdefault(work.name, []).append(work)
        for name, alike in by_name.items():
            yield durability, name, alike


def _title(durability: Durability, name: str) -> str:
    return f"{durability}: {name}" if durability is Durability.AFTER_FSYNC else name


def _ratios(
    measured: Measured, durability: Durability, works: Sequence[Work], other: str
) -> Spread | None:
    """Of rounds in which memory was alike."""
    found: list[float] = []
    for work in works:
        one, at_other = (OURS, durability, work), (other, durability, work)
        found += measured.ratios(one, at_other, lambda sample: sample.rate)
    return spread_if(found)


def _probe(run: Measured) -> str:
    return _text(run.rate(_PROBE, Durability.BEFORE_FSYNC, _PROBE_WORK)) or "-"


def _text(spread: Spread | None) -> str | None:
    return None if spread is None else spread.text()


def _time(run: Measured) -> datetime:
    return datetime.fromisoformat(run.document["machine"]["time"])


def _when(run: Measured) -> str:
    at = _time(run)
    return f"{at.day} {at:%B}, {at.hour} h"


def _line(first: str, cells: Iterable[str]) -> str:
    return f"| {first} | " + " | ".join(cells) + " |"


def _rule(columns: int) -> str:
    return "|---" * (columns + 1) + "|"
