"""`kvcq spark`: rebuild, verify, export and report on Spark, beside the broker.

Needs neither PySpark nor Java to be imported; each command asks for them when it runs. Results go
to standard output, all else to standard error. Exit codes: 0 success, 1 findings or a refusal,
2 wrong usage.
"""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import Progress as ProgressBar

from migration.spark.session import SparkSettings, spark_session
from store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession
    from rich.progress import TaskID

    from store.progress import Progress

EXIT_FINDINGS = 1

_notes = Console(stderr=True)
_directory = click.Path(exists=True, file_okay=False, path_type=Path)
_new_directory = click.Path(file_okay=False, path_type=Path)


_store = click.argument("store", metavar="DIRECTORY", type=_directory)


class RefusedError(click.ClickException):
    """Ends the command with the reason."""

    exit_code = EXIT_FINDINGS


@dataclass(frozen=True)
class Run:
    """How a command runs Spark, and talks."""

    settings: SparkSettings
    as_json: bool

    @contextmanager
    def session(self) -> Iterator[tuple[SparkSession, Progress]]:
        """Spark and a progress bar for the length of a command.

        Turns errors that a user can act on into RefusedError.
        """
        with (
            _refusals(),
            spark_session(self.settings) as spark,
            ProgressBar(console=_notes, transient=True, disable=self.as_json) as bar,
            _refusals(),  # while Spark runs: its errors are asked for their text there
        ):
            yield spark, _teller(bar)

    def show(self, document: dict[str, Any], text: str) -> None:
        """The result, for a program or for a person."""
        click.echo(json.dumps(document, ensure_ascii=False) if self.as_json else text)


@click.group(name="spark")
def spark() -> None:
    """Large jobs on Spark: rebuild, verify, export, report.

    They run on this machine unless --master names a cluster. Its executors then need this package,
    and the store under the same path.
    """


def _with_run(command: Callable[..., None]) -> Callable[..., None]:
    """Options of all commands, handed over as one `Run`."""

    def run(
        *,
        master: str,
        memory: str,
        java_home: Path | None,
        conf: tuple[str, ...],
        as_json: bool,
        **others: Any,  # noqa: ANN401 - the options of the command
    ) -> None:
        settings = SparkSettings(
            master=master, driver_memory=memory, java_home=java_home, conf=_conf(conf)
        )
        command(Run(settings, as_json), **others)

    run.__doc__ = command.__doc__
    options = [
        click.option("--master", default="local[*]", show_default=True, help="Spark's master."),
        click.option("--memory", default="1g", show_default=True, help="Heap of the driver."),
        click.option("--java-home", type=_directory, help="Java to use; found by default."),
        click.option(
            "--conf", multiple=True, metavar="NAME=VALUE", help="Spark setting; repeatable."
        ),
        click.option("--json", "as_json", is_flag=True, help="Print JSON, and no progress."),
    ]
    for option in reversed(options):
        run = option(run)
    return run


def _conf(given: tuple[str, ...]) -> dict[str, str]:
    found = dict(one.partition("=")[::2] for one in given)
    if not all(found) or not all("=" in one for one in given):
        raise click.BadParameter("is not like spark.executor.cores=2", param_hint="--conf")
    return found


@spark.command(name="rebuild")
@_store
@click.option("--output", type=_new_directory, help="Only write sorted files, here.")
@click.option("--begin", type=click.IntRange(0), help="First record. With --output.")
@click.option("--end", type=click.IntRange(0), help="Physical offset to stop at. With --output.")
@click.option("--deletions", type=click.IntRange(0), help="Last deletion. With --output.")
@click.option("--verify-crc", is_flag=True, help="Check the CRCs of every record.")
@_with_run
def rebuild_command(
    run: Run,
    store: Path,
    output: Path | None,
    **options: Any,  # noqa: ANN401 - as jobs.rebuild has them
) -> None:
    """Rebuild the database of the stopped store in DIRECTORY from its commit log.

    The new database takes the place of the old one when it is complete. With --output sorted files
    are written and the store is not changed. It may be running: `kvcq migrate status` tells where
    RocksDB ends (--begin), where the log ends (--end) and the number of --deletions; `kvcq migrate
    ingest` hands the files over.
    """
    if output is None and any(options[name] is not None for name in ("begin", "end", "deletions")):
        raise click.UsageError("--begin, --end and --deletions need --output")
    with run.session() as (session, progress):
        from migration.spark.jobs import rebuild

        result = rebuild(session, store, output=output, progress=progress, **options)
    text = (
        f"{result.units:,} units of {result.queues:,} queues and {result.index_rows:,} index rows,"
        f" from {result.log_start:,} to {result.log_end:,} of the log, in {result.seconds:.1f} s\n"
    )
    place = f"{len(result.files) + 1} files in {output}" if output else f"{store / 'kvcq'} is new"
    run.show(result.as_json() | {"output": None if output is None else str(output)}, text + place)


@spark.command(name="verify")
@_store
@click.option("--files", type=_directory, help="File queues that lie elsewhere.")
@click.option("--database", type=_directory, help="Database that lies elsewhere.")
@click.option("--end", type=click.IntRange(0), help="Physical offset to stop at.")
@click.option("--output", type=_new_directory, help="Write all differences here, as Parquet.")
@click.option("--verify-crc", is_flag=True, help="Check the CRCs of every record.")
@_with_run
def verify_command(
    run: Run,
    store: Path,
    **options: Any,  # noqa: ANN401 - as jobs.verify has them
) -> None:
    """Compare the commit log in DIRECTORY with its file queues and its database.

    The store is stopped, or --database names that of a backup of it: kvcq/ where `kvcq restore`
    has put it. Exits with 1 when there are differences. Changes nothing.
    """
    with run.session() as (session, progress):
        from migration.spark.jobs import verify

        result = verify(session, store, progress=progress, **options)
    run.show(result.as_json(), result.summary())
    if not result.equal:
        raise SystemExit(EXIT_FINDINGS)


def _with_choice(command: Callable[..., None]) -> Callable[..., None]:
    """Options that choose messages."""
    times = click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"])
    for option in (
        click.option("--all-topics", is_flag=True, help="Include messages of deleted topics."),
        click.option("--skip-damage", is_flag=True, help="Skip damaged parts of the log."),
        click.option("--until", type=times, help="Stored at or before this time, UTC."),
        click.option("--since", type=times, help="Stored at or after this time, UTC."),
        click.option("--topic", "topics", multiple=True, help="Only this topic; repeatable."),
    ):
        command = option(command)
    return command


@spark.command(name="export")
@_store
@click.argument("output", type=_new_directory)
@click.option("--overwrite", is_flag=True, help="Replace what is in OUTPUT.")
@_with_choice
@_with_run
def export_command(
    run: Run,
    store: Path,
    output: Path,
    *,
    overwrite: bool,
    **choice: Any,  # noqa: ANN401 - see _with_choice
) -> None:
    """Write the messages of the store in DIRECTORY to OUTPUT as Parquet, by topic and day.

    The store may be running.
    """
    with run.session() as (session, progress):
        from migration.spark.jobs import choose, export

        chosen = choose(store, **_in_utc(choice))
        result = export(session, chosen, output, overwrite=overwrite, progress=progress)
    text = f"{result.messages:,} messages of {result.topics:,} topics in {result.seconds:.1f} s"
    run.show(result.as_json(), f"{text}\n{output}")


@spark.command(name="report")
@_store
@click.argument("page", type=click.Path(dir_okay=False, path_type=Path))
@_with_choice
@_with_run
def report_command(
    run: Run,
    store: Path,
    page: Path,
    **choice: Any,  # noqa: ANN401 - see _with_choice
) -> None:
    """Write figures and plots about the store in DIRECTORY to PAGE, one HTML file.

    The store may be running.
    """
    with run.session() as (session, progress):
        from migration.spark.jobs import choose, gather_report, render

        report = gather_report(session, choose(store, **_in_utc(choice)), progress)
        page.write_text(render(report), encoding="utf-8")
    text = f"{report.messages:,} messages of {report.topic_count:,} topics"
    run.show(report.as_json() | {"page": str(page)}, f"{text}, {report.holes:,} holes\n{page}")


def _in_utc(choice: dict[str, Any]) -> dict[str, Any]:
    """The times among the options are of that zone, and do not say so."""
    return {
        name: value.replace(tzinfo=UTC) if isinstance(value, datetime) else value
        for name, value in choice.items()
    }


def _teller(bar: ProgressBar) -> Progress:
    tasks: dict[str, TaskID] = {}

    def tell(what: str, share: float) -> None:
        if what not in tasks:
            tasks[what] = bar.add_task(what, total=1.0)
        bar.update(tasks[what], completed=share)

    return tell


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except StoreError as error:
        raise RefusedError(str(error)) from error
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark.errors", "py4j.")):
            raise
        raise RefusedError(_reason(str(error))) from error


def _reason(text: str) -> str:
    """The last error named in a traceback that came from an executor."""
    named = re.findall(
        r"^(?:Caused by: )?[\w.]+(?:Error|Exception): (.+)$", text, flags=re.MULTILINE
    )
    return named[-1] if named else text.strip().splitlines()[0]
