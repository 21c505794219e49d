"""kvcq bench: load scenarios, their reports, and two reports side by side."""

from __future__ import annotations

import shlex
import shutil
import tempfile
import threading
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

import server
from kvcq_bench.engine import run_scenario
from kvcq_bench.errors import BenchError, CheckFailedError, ScenarioError
from kvcq_bench.kinds import EMBEDDED_KINDS
from kvcq_bench.report import (
    compare,
    comparison_page,
    differing_conditions,
    met_text,
    number_text,
    read_report,
    run_page,
    summarise,
    write_report,
)
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
    from kvcq_bench.scenario import Scenario
    from kvcq_bench.targets import Target


#: Fields of a report whose keys are names: of figures, statistics, settings and packages.
_NAMES = frozenset(
    ("parameters", "store", "versions", "figures", "counters", "latencies", "samples", "points")
)

_scale = click.option(
    "--scale",
    type=float,
    metavar="FACTOR",
    default=1.0,
    show_default=True,
    help="Multiplies all amounts.",
)


@click.group(cls=Sections)
def bench() -> None:
    """Put load on a server or a store, check every message, write a report."""


@bench.command("list")
@json_option
def list_scenarios(as_json: bool) -> None:
    """Name the scenarios that come with the program."""
    rows = [(name, load_scenario(name).title) for name in shipped_scenarios()]
    if as_json:
        print_json({"scenarios": [{"name": name, "title": title} for name, title in rows]})
    else:
        print_table("", ("scenario", "what it does"), rows)


@bench.command()
@click.argument("scenario")
@click.option(
    "--server",
    "target",
    type=server_address,
    metavar="HOST:PORT",
    help="A server that runs; it gets new topics.",
)
@security_options
@click.option(
    "--embedded",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIRECTORY",
    help="A store in this process.",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIRECTORY",
    help="Start a server on this directory. The default, with one that is deleted afterwards; "
    "a scenario that needs a store in this process gets that instead.",
)
@_scale
@click.option(
    "--seed", type=int, metavar="N", help="Of random choices; otherwise the scenario's own."
)
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where to write NAME.json and NAME.html.  [default: bench-SCENARIO]",
)
@json_option
def run(
    scenario: str,
    target: str | None,
    embedded: Path | None,
    data: Path | None,
    scale: float,
    seed: int | None,
    report: Path | None,
    as_json: bool,
) -> None:
    """Run SCENARIO, a name or number of `kvcq bench list`, or a file."""
    if sum(one is not None for one in (target, embedded, data)) > 1:
        raise click.UsageError("--server, --embedded and --data exclude each other")
    try:
        wanted = load_scenario(scenario, scale=scale, seed=seed)
        document = _run(wanted, target, embedded, data)
    except ScenarioError as error:
        raise BadRequestError(str(error), command="kvcq bench list") from error
    except CheckFailedError as error:
        raise _not_as_acknowledged(error) from error
    except (BenchError, KvcqError) as error:
        raise CommandError(str(error)) from error
    paths = _write(document, report or Path(f"bench-{wanted.name}"))
    if as_json:
        print_json(_shown(document))
    else:
        _show(document)
    say("report: " + ", ".join(map(str, paths)))


def _run(
    scenario: Scenario, target: str | None, embedded: Path | None, data: Path | None
) -> dict[str, Any]:
    with ExitStack() as cleanup:
        opened: Target
        if target is not None:
            with connect(target):
                pass  # one that is not there is told at once; a scenario would try again for long
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
            return run_scenario(scenario, opened, watch=_Progress(status, scenario.title))


@contextmanager
def _temporary() -> Iterator[Path]:
    """A directory that is removed at the end, but not when a check complained of what is in it."""
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


def _not_as_acknowledged(error: CheckFailedError) -> CommandError:
    text = f"not what was acknowledged: {error}"
    kept = getattr(error, "__notes__", [])
    if not kept:
        return CommandError(text)
    return CommandError(text, "the store is kept", command=kept[0])


def _shown(document: dict[str, Any]) -> dict[str, Any]:
    """The report as a JSON document of the command line: its fields in camelCase."""
    latencies = {name: camel_case(one) for name, one in document["latencies"].items()}
    return {**camel_case(document, names=_NAMES), "latencies": latencies}


def _write(document: dict[str, Any], stem: Path) -> tuple[Path, Path]:
    """The report and its page, under `stem` with .json and .html; returns both paths."""
    report, shown = stem.with_name(f"{stem.name}.json"), stem.with_name(f"{stem.name}.html")
    write_report(document, report)
    shown.write_text(run_page(document), encoding="utf-8")
    return report, shown


class _Progress:
    """Shows phase, time and counts. Thread: any."""

    def __init__(self, status: Status, title: str) -> None:
        self._status = status
        self._title = title
        self._lock = threading.Lock()

    def __call__(self, recorder: Recorder) -> None:
        counts = recorder.document()["counters"]
        shown = "  ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))
        with self._lock:
            self._status.update(
                f"{self._title}: {recorder.phase}  [dim]{recorder.elapsed_s:.0f} s  {shown}[/]"
            )


def _show(document: dict[str, Any]) -> None:
    rows = [(name, number_text(value)) for name, value in document["figures"].items()]
    print_table(document["title"], ("figure", "value"), rows)
    latencies = [
        (name, *(f"{one[share]:.2f}" for share in ("p50_ms", "p99_ms", "p100_ms")))
        for name, one in document["latencies"].items()
        if one["count"]
    ]
    print_table("", ("latency", "p50 ms", "p99 ms", "max ms"), latencies)
    for note in document["notes"]:
        say(f"note: {note}")


@bench.command("all")
@click.option(
    "--reports",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("reports"),
    show_default=True,
    help="Directory for NAME.json and NAME.html of each.",
)
@_scale
@click.option("--only", multiple=True, metavar="SCENARIO", help="These alone; may be repeated.")
@json_option
def run_all(reports: Path, scale: float, only: tuple[str, ...], as_json: bool) -> None:
    """Run all scenarios but the soak, one after the other, and print one table of the goals.

    Exits with 1 when a scenario failed: the others run all the same.
    """
    try:
        scenarios = [load_scenario(name, scale=scale) for name in only or shipped_scenarios()]
    except ScenarioError as error:
        raise BadRequestError(str(error), command="kvcq bench list") from error
    written: list[Path] = []
    failed: list[str] = []
    for scenario in scenarios:
        if scenario.kind == "soak" and not only:
            continue
        try:
            document = _run(scenario, None, None, None)
        except CheckFailedError as error:
            told = _not_as_acknowledged(error)
            kept = "" if told.command is None else f"; {told.hint}: {told.command}"
            failed.append(f"{scenario.name}: {told.message}{kept}")
        except (BenchError, KvcqError) as error:
            failed.append(f"{scenario.name}: {error}")
        else:
            written.append(_write(document, reports / scenario.name)[0])
            say(f"{scenario.name}: {document['duration_s']:,.0f} s, {written[-1]}")
    _show_summary(written, as_json=as_json, failed=failed)
    if failed:
        raise CommandError("; ".join(failed))


@bench.command("render")
@click.argument("report", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--html",
    "html_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where to write the page.  [default: bench-SCENARIO.html]",
)
def render(report: Path, html_path: Path | None) -> None:
    """Write the page of REPORT: NAME.json, or NAME.json.gz."""
    try:
        document = read_report(report)
    except ScenarioError as error:
        raise BadRequestError(str(error)) from error
    chosen = html_path or Path(f"bench-{document['scenario']}.html")
    chosen.write_text(run_page(document), encoding="utf-8")
    say(f"page: {chosen}")


@bench.command("summary")
@click.argument("reports", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--markdown", is_flag=True, help="Print a table for a page of docs.")
@json_option
def summary(reports: tuple[Path, ...], markdown: bool, as_json: bool) -> None:
    """Print one table of REPORTS: files, or directories of them, also of `make bench`."""
    try:
        if markdown:
            click.echo(summarise(reports).markdown(), nl=False)
        else:
            _show_summary(reports, as_json=as_json, failed=[])
    except ScenarioError as error:
        raise BadRequestError(str(error)) from error


def _show_summary(reports: Sequence[Path], *, as_json: bool, failed: list[str]) -> None:
    made = summarise(reports)
    if as_json:
        print_json(camel_case({**made.document(), "failed": failed}))
        return
    rows = [
        (
            line.work,
            f"{number_text(line.measured)} {line.unit}".rstrip(),
            line.wanted,
            line.verdict,
            line.command,
        )
        for line in made.lines
    ]
    print_table(met_text(made.lines), ("work", "measured", "wanted", "", "again with"), rows)
    for run_line in made.runs:
        say(run_line)


@bench.command("compare")
@click.argument("one", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("other", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--html",
    "html_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a page as well.",
)
@json_option
def compare_reports(one: Path, other: Path, html_path: Path | None, as_json: bool) -> None:
    """Show two reports of one scenario side by side: ONE.json OTHER.json."""
    try:
        left, right = read_report(one), read_report(other)
        rows = compare(left, right)
    except ScenarioError as error:
        raise BadRequestError(str(error)) from error
    differing = differing_conditions(left, right)
    if html_path is not None:
        html_path.write_text(comparison_page(left, right), encoding="utf-8")
        say(f"page: {html_path}")
    if as_json:
        print_json({"figures": rows, "differing": differing})
        return
    print_table(
        left["title"],
        ("figure", left["machine"]["time"], right["machine"]["time"], "ratio"),
        [
            (name, number_text(a), number_text(b), f"{b / a:.2f}" if a else "-")
            for name, a, b in rows
        ],
    )
    for line in differing:
        say(f"not the same: {line}")
