"""`kvcq spark`: rebuild, verify, export and report on Spark, beside the broker.

Needs neither PySpark nor Java to be imported; each command asks for them when it runs. Results go
to standard output, all else to standard error. Exit codes: 0 success, 1 findings or a refusal,
2 wrong usage.
"""

from __future__ import annotations

import json
import re
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import Progress as ProgressBar

from store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession
    from rich.progress import TaskID

    from migration.spark.progress import Progress

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

    master: str
    memory: str
    java_home: Path | None
    as_json: bool

    @contextmanager
    def session(self) -> Iterator[tuple[SparkSession, Progress]]:
        """Spark and a progress bar for the length of a command.

        Turns errors that a user can act on into RefusedError.
        """
        from migration.spark.session import require_packages

        with _refusals():
            require_packages()
            with (
                self._spark() as spark,
                ProgressBar(console=_notes, transient=True, disable=self.as_json) as bar,
            ):
                yield spark, _teller(bar)

    @contextmanager
    def _spark(self) -> Iterator[SparkSession]:
        from migration.spark.session import SparkSettings, spark_session

        settings = SparkSettings(
            master=self.master,
            app_name="kvcq",
            driver_memory=self.memory,
            java_home=self.java_home,
        )
        with spark_session(settings) as spark:
            yield spark

    def show(self, document: dict[str, Any], text: str) -> None:
        """The result, for a program or for a person."""
        click.echo(json.dumps(document, ensure_ascii=False) if self.as_json else text)


@click.group(name="spark")
def spark() -> None:
    """Large jobs on Spark: rebuild, verify, export, report.

    On this machine unless --master names a cluster; its executors then need this package, and the
    same paths.
    """


def _with_run(command: Callable[..., None]) -> Callable[..., None]:
    """Options of all commands, handed over as one `Run`."""

    def run(
        *,
        master: str,
        memory: str,
        java_home: Path | None,
        as_json: bool,
        **others: Any,  # noqa: ANN401 - the options of the command
    ) -> None:
        command(Run(master, memory, java_home, as_json), **others)

    run.__doc__ = command.__doc__
    options = [
        click.option("--master", default="local[*]", show_default=True, help="Where Spark runs."),
        click.option("--memory", default="1g", show_default=True, help="Heap of the driver."),
        click.option("--java-home", type=_directory, help="Java to use; by default one is found."),
        click.option("--json", "as_json", is_flag=True, help="Print JSON, and no progress."),
    ]
    for option in reversed(options):
        run = option(run)
    return run


@spark.command(name="rebuild")
@_store
@click.option("--output", type=_new_directory, help="Only write the sorted files, to here.")
@click.option("--begin", type=click.IntRange(0), help="Where a record begins. With --output.")
@click.option("--end", type=click.IntRange(0), help="Physical offset to stop at. With --output.")
@click.option("--deletions", type=click.IntRange(0), help="Of a running store. With --output.")
@click.option("--verify-crc", is_flag=True, help="Check the CRCs of every record.")
@_with_run
def rebuild_command(
    run: Run,
    store: Path,
    output: Path | None,
    begin: int | None,
    end: int | None,
    deletions: int | None,
    *,
    verify_crc: bool,
) -> None:
    """Rebuild the database of the stopped store in DIRECTORY from its commit log.

    The new database takes the place of the old one when it is complete. With --output sorted files
    are written and the store stays as it is. It may run meanwhile: `kvcq migrate status` has said
    where RocksDB ends (--begin), where the log ends (--end), and the number of --deletions;
    `kvcq migrate ingest` hands the files over.
    """
    if output is None and (begin, end, deletions) != (None, None, None):
        raise click.UsageError("--begin, --end and --deletions need --output")
    with run.session() as (session, progress):
        from migration.spark.decoder import ReadOptions
        from migration.spark.rebuild import (
            RebuildSettings,
            rebuild,
            replace_database,
            write_manifest,
        )
        from migration.spark.stores import (
            find_parts,
            locked,
            read_ends,
            read_liveness,
            uses_database,
        )

        parts = find_parts(store)
        if output is None and not uses_database(parts):
            raise RefusedError(f"{store} keeps no queues in RocksDB: name --output")
        if output is not None and output.exists():
            raise RefusedError(f"{output} exists")

        def work(target: Path) -> Any:  # noqa: ANN401 - RebuildResult, imported here only
            liveness = read_liveness(parts)
            if deletions is not None:
                # What a running store knows, its database may not have on the disk yet.
                liveness = replace(liveness, deletions=deletions)
            settings = RebuildSettings(
                log=parts.log,
                output=target,
                begin=begin,
                end=end,
                liveness=liveness,
                ends=read_ends(parts, liveness),
                read=ReadOptions(verify_crc=verify_crc),
            )
            return rebuild(session, settings, progress)

        if output is not None:
            result = work(output)
            write_manifest(output, result)
        else:
            with locked(parts):
                scratch = store / "kvcq.sorted"
                shutil.rmtree(scratch, ignore_errors=True)  # of a run that was cut short
                try:
                    result = work(scratch)
                    replace_database(store / "kvcq", result)
                finally:
                    shutil.rmtree(scratch, ignore_errors=True)
    text = (
        f"{result.units:,} units of {result.queues:,} queues and {result.index_rows:,} index rows,"
        f" from {result.log_start:,} to {result.log_end:,} of the log, in {result.seconds:.1f} s\n"
    )
    place = f"{len(result.files) + 1} files in {output}" if output else f"{store / 'kvcq'} is new"
    run.show(result.as_json() | {"output": None if output is None else str(output)}, text + place)


@spark.command(name="verify")
@_store
@click.option("--files", type=_directory, help="File queues to compare, elsewhere.")
@click.option("--database", type=_directory, help="Database to compare, such as a backup.")
@click.option("--end", type=click.IntRange(0), help="Physical offset to stop at.")
@click.option("--output", type=_new_directory, help="Write all differences here, as Parquet.")
@click.option("--verify-crc", is_flag=True, help="Check the CRCs of every record.")
@_with_run
def verify_command(
    run: Run,
    store: Path,
    files: Path | None,
    database: Path | None,
    end: int | None,
    output: Path | None,
    *,
    verify_crc: bool,
) -> None:
    """Compare the commit log in DIRECTORY with its file queues and its database, all that it has.

    The store is stopped, or --database names a backup of a running one. Exits with 1 when there are
    differences. Changes nothing.
    """
    with run.session() as (session, progress):
        from migration.spark.decoder import ReadOptions
        from migration.spark.stores import find_parts, locked, read_liveness
        from migration.spark.verify import VerifySettings, verify

        parts = find_parts(store)
        if output is not None and output.exists():
            raise RefusedError(f"{output} exists")
        settings = VerifySettings(
            log=parts.log,
            files=files or parts.files,
            database=database or parts.database,
            end=end,
            output=output,
            liveness=read_liveness(parts),
            read=ReadOptions(verify_crc=verify_crc),
        )
        if database is not None:
            result = verify(session, settings, progress)
        else:
            with locked(parts):
                result = verify(session, settings, progress)
    run.show(result.as_json(), result.summary())
    if not result.equal:
        raise SystemExit(EXIT_FINDINGS)


def _with_choice(command: Callable[..., None]) -> Callable[..., None]:
    """Options that choose messages."""
    times = click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"])
    for option in (
        click.option("--all-topics", is_flag=True, help="Also messages of deleted topics."),
        click.option("--skip-damage", is_flag=True, help="Pass over what is no record."),
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

    It may be running.
    """
    with run.session() as (session, progress):
        from migration.spark.export import export

        if output.exists() and any(output.iterdir()) and not overwrite:
            raise RefusedError(f"{output} is not empty: --overwrite replaces what is there")
        chosen = _choice(store, **choice)
        result = export(session, chosen, output, overwrite=True, progress=progress)
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

    It may be running."""
    with run.session() as (session, progress):
        from migration.spark.report import gather_report
        from migration.spark.report_page import render

        report = gather_report(session, _choice(store, **choice), progress)
        page.write_text(render(report), encoding="utf-8")
    document = {
        "page": str(page),
        "messages": report.messages,
        "bytes": report.bytes,
        "topics": report.topic_count,
        "queues": report.queue_count,
        "holes": report.holes,
        "duplicates": report.duplicates,
    }
    text = f"{report.messages:,} messages of {report.topic_count:,} topics"
    run.show(document, f"{text}, {report.holes:,} holes\n{page}")


def _choice(
    store: Path,
    topics: tuple[str, ...],
    since: datetime | None,
    until: datetime | None,
    *,
    skip_damage: bool,
    all_topics: bool,
) -> Any:  # noqa: ANN401 - MessageChoice, imported here only
    from migration.spark.liveness import ALL_LIVE
    from migration.spark.messages import MessageChoice
    from migration.spark.stores import find_parts, read_liveness

    parts = find_parts(store)
    return MessageChoice(
        log=parts.log,
        topics=topics,
        begin_ms=_milliseconds(since),
        end_ms=_milliseconds(until),
        liveness=ALL_LIVE if all_topics else read_liveness(parts),
        skip_damage=skip_damage,
    )


def _milliseconds(time: datetime | None) -> int | None:
    return None if time is None else int(time.replace(tzinfo=UTC).timestamp() * 1000)


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
        if not type(error).__module__.startswith("pyspark.errors"):
            raise
        raise RefusedError(_reason(str(error))) from error


def _reason(text: str) -> str:
    """The last error named in a traceback that came from an executor."""
    named = re.findall(r"^[\w.]+(?:Error|Exception): (.+)$", text, flags=re.MULTILINE)
    return named[-1] if named else text.strip().splitlines()[0]
