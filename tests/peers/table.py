"""The tables of a kept run in Markdown: median, spread, and ours beside each other system."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.peers.echoes import table as echo_table
from tests.peers.echoes.table import Echoes
from tests.peers.goals import goals
from tests.peers.measured import Measured
from tests.peers.spread import NoSpreadError, Spread, short, spread_of
from tests.peers.values import OURS, Durability, Memory, Sample
from tests.peers.works import RESTART, STOP, WORKS, Work, work_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Title of a panel, what is below it, durability and name of the work.
_PLOTTED = (
    ("Put, batches of 128", Durability.BEFORE_FSYNC, "put, batches of 128"),
    ("Put, one at a time", Durability.BEFORE_FSYNC, "put, one at a time, blocking"),
    ("Put, 64 callers, after fsync", Durability.AFTER_FSYNC, "put, 64 callers, one a call"),
    ("Read back, consumer", Durability.BEFORE_FSYNC, "read back, consumer"),
    ("Pull, 32 a call", Durability.BEFORE_FSYNC, "pull, 32 a call"),
    ("First message to new queues", Durability.BEFORE_FSYNC, "first message to new queues"),
)
_SHORT_TITLES = {
    "kvcq": "kvcq",
    "redis": "Redis",
    "nats": "NATS",
    "rocketmq-files": "RMQ",
    "rocketmq-rocksdb": "RMQ/R",
    "rocketmq-proxy": "proxy",
}


def figures_of_plot(measured: Measured) -> list[tuple[str, str, list[tuple[str, Spread, bool]]]]:
    """Panels: title, unit, and of each system its short name, its rate, and whether it is ours."""
    panels = []
    for title, durability, name in _PLOTTED:
        work = work_of(durability, name)
        found = [
            (_SHORT_TITLES.get(system, system), spread, system == OURS)
            for system in measured.systems
            if system not in measured.limits
            and (spread := measured.spread(system, durability, work, lambda one: one.rate))
            is not None
        ]
        if found:
            panels.append((title, work.unit, found))
    return panels


def markdown(document: dict[str, Any]) -> str:
    """All tables. Raises NoSpreadError: of one round nothing is printed."""
    if document["rounds"] < 2:
        raise NoSpreadError(
            "1 round has no spread, so there is no table: measure at least 2 rounds"
        )
    measured = Measured(document)
    echoes = Echoes(document)

    parts = [
        "\n".join(_run(document)),
        "Goals and limits",
        _goals(measured),
        f"Acknowledged before fsync, {_cold_memory(document)}",
        _rates(measured, Durability.BEFORE_FSYNC, Memory.COLD),
        "Acknowledged before fsync, memory touched first",
        _rates(measured, Durability.BEFORE_FSYNC, Memory.TOUCHED),
        "Acknowledged before fsync, memory as it comes",
        _rates(measured, Durability.BEFORE_FSYNC, Memory.AS_IT_COMES),
        f"Acknowledged after fsync, memory as it comes. {_fdatasync(document)}",
        _rates(measured, Durability.AFTER_FSYNC, Memory.AS_IT_COMES),
        "Median and p99 of a call, us, of the round in the middle",
        _calls(measured),
        "Processor time a message, us, server + client, all processes",
        _processor(measured),
        "Memory, disk, restart",
        _footprint(measured),
        "Bare echoes of 1 KiB without protobuf, calls a second",
        echo_table.rates(echoes),
        "Processor time of a bare echo, us, server + client, all processes",
        echo_table.processor(echoes),
        "\n".join(_notes(measured)),
    ]
    return "\n\n".join(_with_titles(parts))


def _with_titles(parts: Sequence[str]) -> list[str]:
    """Those that say something; a title goes with its table."""
    return [
        part
        for part, after in zip(parts, [*parts[1:], "end"], strict=True)
        if part and (after or part.startswith("|"))
    ]


def _run(document: dict[str, Any]) -> list[str]:
    machine, versions = document["machine"], document["versions"]
    return [
        f"{machine['processor']}, {machine['cores']} cores, "
        f"{machine['memory_bytes'] / 2**30:.0f} GiB, {machine['time'][:10]}; "
        f"{document['rounds']} rounds, scale {document['scale']:g}. "
        + ", ".join(f"{name} {version}" for name, version in versions.items())
        + "."
    ]


def _goals(measured: Measured) -> str:
    lines = [
        f"| {goal.name} | {goal.wanted} | {goal.reached} | {goal.verdict} | {goal.limit} |"
        for goal in goals(measured)
    ]
    head = ["| goal | wanted | reached | | nearest limit, and our share of it |", "|---" * 5 + "|"]
    return "\n".join([*head, *lines]) if lines else ""


def _table(
    measured: Measured, rows: Sequence[tuple[str, Callable[[str], str | None]]], first: str
) -> str:
    """A row each, a column a system; those without any figure are left out."""
    found = [(name, {system: cell(system) for system in measured.systems}) for name, cell in rows]
    systems = [one for one in measured.systems if any(cells[one] for _, cells in found)]
    if not systems:
        return ""
    titles = [measured.title(system) for system in systems]
    lines = [f"| {first} | " + " | ".join(titles) + " |", "|---" * (len(titles) + 1) + "|"]
    lines += [
        f"| {name} | " + " | ".join(cells[system] or "-" for system in systems) + " |"
        for name, cells in found
        if any(cells.values())
    ]
    return "\n".join(lines)


def _compared(
    measured: Measured,
    durability: Durability,
    work: Work,
    figure: Callable[[Sample], float],
    *,
    more_is_better: bool,
) -> Callable[[str], str | None]:
    """Cells of one figure; those of others end with how many times better ours is, those of a
    limit with how much of it ours is."""

    def cell(system: str) -> str | None:
        spread = measured.spread(system, durability, work, figure)
        if spread is None:
            return None
        ours = measured.spread(OURS, durability, work, figure)
        # Of what grew for one and shrank for the other there is no multiple.
        if system == OURS or ours is None or spread.median <= 0 or ours.median <= 0:
            return spread.text()
        ratio = ours.median / spread.median if more_is_better else spread.median / ours.median
        return f"{spread.text()}, **{short(ratio)}**"

    return cell


def _rates(measured: Measured, durability: Durability, memory: Memory) -> str:
    rows = [
        (
            f"{work.name}, {work.unit}",
            _compared(measured, durability, work, lambda sample: sample.rate, more_is_better=True),
        )
        for work in WORKS[durability]
        if work.method and work.memory is memory
    ]
    return _table(measured, rows, "work")


def _calls(measured: Measured) -> str:
    def cell(durability: Durability, work: Work) -> Callable[[str], str | None]:
        def found(system: str) -> str | None:
            def of(share: str) -> Spread | None:
                if any(one.timed[share] is None for one in measured.of(system, durability, work)):
                    return None
                return measured.spread(
                    system, durability, work, lambda sample: float(sample.timed[share])
                )

            median, high = of("p50_us"), of("p99_us")
            return None if median is None or high is None else f"{median.text()}; p99 {high.text()}"

        return found

    rows = [
        (f"{work.name}, {durability}", cell(durability, work))
        for durability, works in WORKS.items()
        for work in works
        if work.method in ("put_one", "put_one_asyncio", "put_by_callers", "pull")
    ]
    return _table(measured, rows, "call")


def _processor(measured: Measured) -> str:
    def cell(durability: Durability, work: Work) -> Callable[[str], str | None]:
        def found(system: str) -> str | None:
            server = measured.spread(
                system,
                durability,
                work,
                lambda sample: sample.server_cpu_s / sample.timed["count"] * 1e6,
            )
            client = measured.spread(
                system,
                durability,
                work,
                lambda sample: sample.client_cpu_s / sample.timed["count"] * 1e6,
            )
            return (
                None if server is None or client is None else f"{server.text()} + {client.text()}"
            )

        return found

    rows = [
        (f"{work.name}, {durability}", cell(durability, work))
        for durability, works in WORKS.items()
        for work in works
        if work.method and work.memory is not Memory.TOUCHED
    ]
    return _table(measured, rows, "work")


def _footprint(measured: Measured) -> str:
    durability = Durability.BEFORE_FSYNC

    def cells(name: str, figure: Callable[[Sample], float]) -> Callable[[str], str | None]:
        work = work_of(durability, name)
        compared = _compared(measured, durability, work, figure, more_is_better=False)
        # A limit has no server whose memory or disk is its own.
        return lambda system: None if system in measured.limits else compared(system)

    rows: list[tuple[str, Callable[[str], str | None]]] = []
    for name in ("put, batches of 128", "first message to new queues"):
        for key, what in (
            ("resident_bytes", "resident memory of the server"),
            ("pss_bytes", "PSS of the server"),
            ("disk_bytes", "disk"),
        ):

            def growth(sample: Sample, key: str = key) -> float:
                return sample.more[key] / 1e6

            rows.append((f"{name}: {what}, growth, MB", cells(name, growth)))

    def seconds(sample: Sample) -> float:
        return float(sample.timed["seconds"])

    rows += [(f"{name}, s", cells(name, seconds)) for name in (RESTART, STOP)]
    return _table(measured, rows, "")


def _fdatasync(document: dict[str, Any]) -> str:
    found = document["fdatasync"]
    if not found:  # only stacks were compared
        return ""
    median = spread_of([one["p50_us"] for one in found])
    high = spread_of([one["p99_us"] for one in found])
    return (
        f"One bare fdatasync behind 1 KiB on the same disk: {median.text()} us, p99 {high.text()}"
    )


def _cold_memory(document: dict[str, Any]) -> str:
    """What most of the works found that were to find cold memory."""
    found = _cold(document)
    return "cold memory" if 2 * sum(found) >= len(found) else "memory that could not be made cold"


def _cold(document: dict[str, Any]) -> list[float]:
    """Of each work that was to find cold memory, 1 where it did."""
    return [one["more"]["is_cold"] for one in document["samples"] if "is_cold" in one["more"]]


def _notes(measured: Measured) -> list[str]:
    document = measured.document
    lines = []
    for system, settings in document["settings"].items():
        texts = "; ".join(f"{durability}: {text}" for durability, text in settings.items())
        lines.append(f"* {measured.title(system)}: {texts}.")
    for system, reasons in document["not_offered"].items():
        texts = "; ".join(f"{work}: {why}" for work, why in reasons.items())
        lines.append(f"* {measured.title(system)} has no figure of: {texts}.")
    cold = _cold(document)
    if 0 in cold:
        lines.append(
            f"* Of {len(cold)} works on cold memory {cold.count(0)} found that memory comes fast."
        )
    lines += [f"* Left out: {line}." for line in document["left_out"].values()]
    lines += [f"* Failed: {line}" for line in document["failures"]]
    return lines
