"""kvcq bench: load scenarios and their reports."""

from __future__ import annotations

import shlex
import shutil
import tempfile
import threading
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

import server
from kvcq_bench.errors import BenchError, CheckFailedError, ScenarioError
from kvcq_bench.kinds import EMBEDDED_KINDS
from kvcq_bench.report import (
    conclusion,
    figures,
    goals,
    judge,
    page,
    read_report,
    write_report,
)
from kvcq_bench.rounds import report_of, run_scenario
from kvcq_bench.scenario import load_scenario, shipped_scenarios
from kvcq_bench.targets import EmbeddedTarget, OwnServer, RemoteTarget
from kvcq_client import KvcqError
from server.cli.online import connect, credentials_of, security_options, tls_of
from server.cli.terminal import (
    BadRequestError,
    CommandError,
    Sections,
    camel_case,
    json_option,
    notes,
    print_json,
    print_table,
    say,
    server_address,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from rich.status import Status

    from kvcq_bench.recorder import Recorder
    from kvcq_bench.report import Report, Result
    from kvcq_bench.scenario import Scenario
    from kvcq_bench.targets import Target


#: Fields of a report whose keys are data: names of figures, statistics, settings and packages.
_NAMES = frozenset(
    (
        *("parameters", "store", "versions", "systems", "figures"),
        *("counters", "latencies", "samples", "points"),
    )
)


@click.group(cls=Sections)
def bench() -> None:
    """Run load tests, verify every message, and write a report."""


@bench.command("list")
@json_option
def list_scenarios(as_json: bool) -> None:
    """List the built-in scenarios."""
    rows = [(name, load_scenario(name).title) for name in shipped_scenarios()]
    if as_json:
        print_json([{"name": name, "title": title} for name, title in rows])
    else:
        print_table("", ("scenario", "what it does"), rows)


@bench.command()
@click.argument("scenarios", nargs=-1, metavar="[SCENARIO]...")
@click.option(
    "--server",
    "target",
    type=server_address,
    metavar="HOST:PORT",
    help="Test a running server, on new topics.",
)
@security_options
@click.option(
    "--embedded",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIRECTORY",
    help="Test a store embedded in this process.",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIRECTORY",
    help="Start a server on this directory. By default a temporary directory is used, and an "
    "embedded store where the scenario needs one.",
)
@click.option(
    "--scale",
    type=float,
    metavar="FACTOR",
    default=1.0,
    show_default=True,
    help="Factor for all amounts.",
)
@click.option(
    "--seed", type=int, metavar="N", help="Seed of random choices; by default the scenario's."
)
@click.option(
    "--rounds",
    type=click.IntRange(1, 100),
    metavar="N",
    default=1,
    show_default=True,
    help="How often to run each scenario, each time on a new directory.",
)
@click.option(
    "--reports",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="Directory for the reports bench-NAME.json and bench-NAME.html.  [default: the current "
    "one]",
)
@json_option
def run(
    scenarios: tuple[str, ...],
    target: str | None,
    embedded: Path | None,
    data: Path | None,
    scale: float,
    seed: int | None,
    rounds: int,
    reports: Path,
    as_json: bool,
) -> None:
    """Run each SCENARIO: a name or number from `kvcq bench list`, or a file. By default all but the
    soak.

    If one fails, the others still run. Exits with 1 if any failed.
    """
    places = [one for one in (target, embedded, data) if one is not None]
    if len(places) > 1:
        raise click.UsageError("--server, --embedded and --data exclude each other")
    if places and (rounds > 1 or len(scenarios) != 1):
        raise click.UsageError(
            "--server, --embedded and --data need exactly one SCENARIO and one round"
        )
    try:
        names = scenarios or shipped_scenarios()
        wanted = [load_scenario(name, scale=scale, seed=seed) for name in names]
    except ScenarioError as error:
        raise BadRequestError(str(error), command="kvcq bench list") from error
    made: list[Report] = []
    failed: list[CommandError] = []
    for scenario in wanted:
        if scenario.kind == "soak" and not scenarios:
            continue
        turn = partial(_run, scenario, target=target, embedded=embedded, data=data)
        try:
            report = report_of(scenario, [turn] * rounds)
        except CheckFailedError as error:
            failed.append(_not_as_acknowledged(scenario, error))
        except (BenchError, KvcqError) as error:
            failed.append(CommandError(f"{scenario.name}: {error}"))
        else:
            made.append(report)
            paths = _write(report, reports / f"bench-{scenario.name}")
            say(f"{scenario.name}: {report.duration_s:,.0f} s, {', '.join(map(str, paths))}")
    if made:
        _show(made, as_json=as_json)
    for one in failed[:-1]:
        say(f"error: {one.message}")
    if failed:
        raise failed[-1]


def _run(
    scenario: Scenario,
    number: int,
    *,
    target: str | None,
    embedded: Path | None,
    data: Path | None,
) -> Result:
    with ExitStack() as cleanup:
        opened: Target
        if target is not None:
            with connect(target):
                pass  # report an unreachable server at once; a scenario would retry for long
            opened = RemoteTarget(target, tls=tls_of(), credentials=credentials_of())
        elif embedded is not None:
            opened = EmbeddedTarget(embedded, scenario.store)
        else:
            if data is None:
                data = cleanup.enter_context(_temporary())
            if scenario.kind in EMBEDDED_KINDS:
                opened = EmbeddedTarget(data, scenario.store)
            else:
                opened = OwnServer(data, scenario.store, server.__name__)
        cleanup.callback(opened.close)
        with notes.waiting(f"{scenario.title}: beginning") as status:
            progress = _Progress(status, scenario.title)
            return run_scenario(scenario, opened, number=number, watch=progress)


@contextmanager
def _temporary() -> Iterator[Path]:
    """A temporary directory. It is kept if a check failed, because it has the evidence."""
    directory = Path(tempfile.mkdtemp(prefix="kvcq-bench-"))
    keep = False
    try:
        yield directory
    except CheckFailedError as error:
        keep = True
        error.add_note(shlex.join(["kvcq", "check", str(directory / "store")]))
        raise
    finally:
        if not keep:
            shutil.rmtree(directory, ignore_errors=True)


def _not_as_acknowledged(scenario: Scenario, error: CheckFailedError) -> CommandError:
    text = f"{scenario.name}: acknowledged messages are missing or different: {error}"
    kept = getattr(error, "__notes__", [])
    if not kept:
        return CommandError(text)
    return CommandError(text, "the store was kept for inspection", command=kept[0])


def _write(report: Report, stem: Path) -> tuple[Path, Path]:
    """Write the report and its page to `stem` with .json and .html. Returns both paths."""
    kept, shown = stem.with_name(f"{stem.name}.json"), stem.with_name(f"{stem.name}.html")
    write_report(report, kept)
    shown.write_text(page(report), encoding="utf-8")
    return kept, shown


class _Progress:
    """Shows phase, time and counts. Thread: any."""

    def __init__(self, status: Status, title: str) -> None:
        self._status = status
        self._title = title
        self._lock = threading.Lock()

    def __call__(self, recorder: Recorder) -> None:
        counts = sorted(recorder.counters().items())
        shown = "  ".join(f"{name} {count:,}" for name, count in counts)
        with self._lock:
            self._status.update(
                f"{self._title}: {recorder.phase}  [dim]{recorder.elapsed_s:.0f} s  {shown}[/]"
            )


@bench.command("report")
@click.argument("reports", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--html",
    "html_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write all reports to this HTML page, with plots.",
)
@json_option
def show_reports(reports: tuple[Path, ...], html_path: Path | None, as_json: bool) -> None:
    """Show REPORTS (files or directories), with reports of one scenario side by side."""
    try:
        found = [read_report(path) for path in _files(reports)]
    except ScenarioError as error:
        raise BadRequestError(str(error)) from error
    if html_path is not None:
        html_path.write_text("".join(map(page, found)), encoding="utf-8")
        say(f"page: {html_path}")
    _show(found, as_json=as_json)


def _files(paths: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        below = sorted([*path.rglob("*.json"), *path.rglob("*.json.gz")])
        found += below if path.is_dir() else [path]
    if not found:
        raise ScenarioError(f"no report in {', '.join(map(str, paths))}")
    return found


def _show(reports: Sequence[Report], *, as_json: bool) -> None:
    """Show goals and figures. Reports of the same workload are side by side."""
    if as_json:
        print_json({"reports": [_document(report) for report in reports]})
        return
    for work in dict.fromkeys(work for report in reports for work in report.works):
        alike = [report for report in reports if work in report.works]
        head, rows = figures([result for report in alike for result in report.of(work)])
        print_table(alike[0].title, head, rows)
        for line in _differing(alike):
            say(f"conditions differ: {line}")
        for note in dict.fromkeys(
            note for one in alike[-1].of(work) for note in one.course["notes"]
        ):
            say(f"note: {note}")
    for report in reports:
        if outcomes := judge(report):
            head, rows = goals(outcomes)
            print_table(f"{report.title}, {report.machine['time']}", head, rows)
        say(conclusion(report))


def _document(report: Report) -> dict[str, Any]:
    """The report for --json: its fields in camelCase, and the outcomes of its goals."""
    found: dict[str, Any] = camel_case(report.document(), names=_NAMES)
    outcomes = [
        {"work": one.goal.work, "figure": one.goal.figure, "wanted": one.wanted}
        | {"value": one.reached.median, "unit": one.unit, "verdict": one.verdict}
        for one in judge(report)
    ]
    # Always true: a run that misses an acknowledged message ends without a report.
    return {**found, "outcomes": outcomes, "nothingLost": True}


def _differing(reports: Sequence[Report]) -> Iterator[str]:
    """Conditions that differ between the reports, and may be the reason for different figures."""
    for group in ("conditions", "versions", "machine"):
        several = [getattr(report, group) for report in reports]
        for name in dict.fromkeys(name for one in several for name in one):
            values = [one.get(name) for one in several]
            if name not in ("time", "load_average") and any(one != values[0] for one in values):
                yield f"{name}: {' / '.join(map(str, values))}"
