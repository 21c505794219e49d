"""The tables of a run: ours beside the peers, and beside what limits it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_bench.report import RATE, Table, costs, rates
from tests.benchmarks.system import OURS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kvcq_bench.report import Report

#: Systems whose name begins so are ours with other settings, or a part of it.
_VARIANT = f"{OURS}-"
_READ = (
    "A figure is the median of the rounds, with the lowest and the highest; behind it stands how "
    "many times as fast ours is."
)


def tables(report: Report) -> Iterator[str]:
    """All of them in Markdown, with a line before each and the notes at the end."""
    machine = report.machine
    yield (
        f"{machine['processor']}, {machine['cores']} cores, "
        f"{machine['memory_bytes'] / 2**30:.0f} GiB, {machine['time'][:10]}; "
        f"{report.conditions['rounds']} rounds, scale {report.conditions['scale']:g}. "
        + ", ".join(f"{name} {version}" for name, version in report.versions.items())
        + f".\n{_READ}"
    )
    for title, table in (
        ("Beside other systems.", beside_peers(report)),
        ("Beside what limits it.", beside_limits(report)),
        ("With other settings, or beside other work.", beside_variants(report)),
        ("Inside the process, and alone.", rest(report)),
        ("What it costs.", costs(report, report.works, [OURS])),
    ):
        if table.rows:
            yield title
            yield table.markdown()
    lines = [*report.notes, *(f"Failed: {line}" for line in report.failures)]
    if lines:
        yield "\n".join(f"* {line}" for line in lines)


def beside_peers(report: Report) -> Table:
    """Ours and the peers; without peers it has no rows."""
    peers = [name for name in report.systems if _is_peer(report, name)]
    return _table(report, lambda name: name == OURS or name in peers, lambda name: name in peers)


def beside_limits(report: Report) -> Table:
    return _table(
        report, lambda name: name == OURS or name in report.limits, report.limits.__contains__
    )


def beside_variants(report: Report) -> Table:
    return _table(report, _is_ours, lambda name: name != OURS and _is_ours(name))


def rest(report: Report) -> Table:
    """What our server has no part in, with all its figures: one row each."""
    rows = []
    for work in report.works:
        if report.rounds(OURS, work):
            continue
        for name in report.systems:
            names = dict.fromkeys(one for result in report.of(work, name) for one in result.figures)
            for figure in names:
                if figure.endswith(("growth", "processor time")):
                    continue
                spread = report.spread(name, work, figure)
                words = work if figure == RATE else f"{work}: {figure}"
                if spread is not None:
                    unit = report.units(work, figure)
                    rows.append([words, report.systems[name], f"{spread.text()} {unit}".rstrip()])
    return Table(["work", "by", "measured"], rows)


def _table(report: Report, shown: Callable[[str], bool], needed: Callable[[str], bool]) -> Table:
    """Works of ours that at least one of the needed systems does as well."""
    works = [
        work
        for work in report.works
        if report.rounds(OURS, work) and any(needed(one.system) for one in report.of(work))
    ]
    return rates(report, works, [name for name in report.systems if shown(name)])


def _is_ours(name: str) -> bool:
    return name == OURS or name.startswith(_VARIANT)


def _is_peer(report: Report, name: str) -> bool:
    return not _is_ours(name) and name not in report.limits
