"""kvcq spark: rebuild, verify and export on Spark, beside the broker.

Can be imported without PySpark and Java; each command needs them when it runs.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from migration.spark.session import SparkSettings, spark_session
from server.cli.terminal import (
    EXIT_REFUSED,
    OFFSET,
    TIME,
    TIMES,
    Bars,
    CommandError,
    Sections,
    counted,
    json_option,
    print_json,
    text,
)
from store.errors import StoreError, StoreLockedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from store.base import Progress

_directory = click.Path(exists=True, file_okay=False, path_type=Path)
_new_directory = click.Path(file_okay=False, path_type=Path)


_store = click.argument("store", metavar="DIRECTORY", type=_directory)


@dataclass(frozen=True)
class SparkRun:
    """How a command runs Spark and prints its result."""

    settings: SparkSettings
    as_json: bool

    @contextmanager
    def session(self) -> Iterator[tuple[SparkSession, Progress]]:
        """Spark, and a progress display, for one command. Turns errors that a user can act on into
        CommandError."""
        with (
            _refusals(),
            spark_session(self.settings) as spark,
            Bars(quiet=self.as_json) as bars,
            # Inside the session, because texts of Spark's errors are only available while it runs.
            _refusals(),
        ):
            yield spark, bars.show

    def show(self, document: dict[str, Any], told: str) -> None:
        """Print the result: `document` with --json, otherwise `told`."""
        if self.as_json:
            print_json(document)
        else:
            click.echo(told)


@click.group(cls=Sections)
def spark() -> None:
    """Rebuild, verify and export stores on Spark.

    Jobs run on this machine unless --master names a cluster, whose executors need this package, and
    the store under the same path.
    """


def _with_run(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of all commands, which the command gets as one `SparkRun`."""

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
        command(SparkRun(settings, as_json), **others)

    run.__doc__ = command.__doc__
    taken: Callable[..., Any] = run
    for option in (
        json_option,
        click.option(
            "--conf", multiple=True, metavar="NAME=VALUE", help="Setting of Spark; may be repeated."
        ),
        click.option(
            "--java-home", type=_directory, help="Java home; by default found automatically."
        ),
        click.option("--memory", default="1g", show_default=True, help="Heap of the driver."),
        click.option(
            "--master", default="local[*]", show_default=True, help="Master URL of Spark."
        ),
    ):
        taken = option(taken)
    return taken


def _conf(given: tuple[str, ...]) -> dict[str, str]:
    found = dict(one.partition("=")[::2] for one in given)
    if not all(found) or not all("=" in one for one in given):
        raise click.BadParameter(
            "must be NAME=VALUE, such as spark.executor.cores=2", param_hint="--conf"
        )
    return found


@spark.command(name="rebuild")
@_store
@click.option("--output", type=_new_directory, help="Only write sorted files to this directory.")
@click.option("--begin", type=OFFSET, help="Physical offset of the first record. Needs --output.")
@click.option("--end", type=OFFSET, help="Physical offset to stop at. Needs --output.")
@click.option("--verify-crc", is_flag=True, help="Verify the CRC of every record.")
@_with_run
def rebuild_command(
    run: SparkRun,
    store: Path,
    output: Path | None,
    **options: Any,  # noqa: ANN401 - as jobs.rebuild has them
) -> None:
    """Rebuild the database of the stopped store in DIRECTORY from its commit log.

    The new database replaces the old one once it is complete. With --output, only sorted files are
    written, and the store may be running: `kvcq migrate status` shows where RocksDB ends (--begin)
    and where the log ends (--end); `kvcq migrate ingest` ingests the files.
    """
    if output is None and any(options[name] is not None for name in ("begin", "end")):
        raise click.UsageError("--begin and --end need --output")
    with run.session() as (session, progress):
        from migration.spark.jobs import rebuild

        result = rebuild(session, store, output=output, progress=progress, **options)
    told = (
        f"{result.units:,} units of {result.queues:,} queues and {result.index_rows:,} index rows,"
        f" from {result.log_start:,} to {result.log_end:,} of the log, in {result.seconds:.1f} s\n"
    )
    place = f"{len(result.files) + 1} files in {output}" if output else f"{store / 'kvcq'} is new"
    run.show(result.as_json() | {"output": None if output is None else str(output)}, told + place)


@spark.command(name="verify")
@_store
@click.option("--files", type=_directory, help="Directory of the file queues, if not in the store.")
@click.option("--database", type=_directory, help="Directory of the database, if not in the store.")
@click.option("--end", type=OFFSET, help="Physical offset to stop at.")
@click.option(
    "--output", type=_new_directory, help="Write all differences to this directory, as Parquet."
)
@click.option("--verify-crc", is_flag=True, help="Verify the CRC of every record.")
@_with_run
def verify_command(
    run: SparkRun,
    store: Path,
    **options: Any,  # noqa: ANN401 - as jobs.verify has them
) -> None:
    """Compare the commit log in DIRECTORY with its file queues and its database.

    The store must be stopped, or --database must be the kvcq/ directory of a restored backup of it.
    Exits with 1 if there are differences. Changes nothing.
    """
    with run.session() as (session, progress):
        from migration.spark.jobs import verify

        result = verify(session, store, progress=progress, **options)
    run.show(result.as_json(), result.summary())
    if not result.equal:
        raise SystemExit(EXIT_REFUSED)


def _with_choice(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options that select messages."""
    for option in (
        click.option("--all-topics", is_flag=True, help="Include messages of deleted topics."),
        click.option("--skip-damaged", is_flag=True, help="Skip damaged parts of the log."),
        click.option("--until", type=TIME, help="Stored at that time or earlier."),
        click.option("--since", type=TIME, help=f"Stored at that time or later. {TIMES}"),
        click.option(
            "--topic", "topics", type=text, multiple=True, help="Only this topic; may be repeated."
        ),
    ):
        command = option(command)
    return command


@spark.command(name="export")
@_store
@click.argument("output", type=_new_directory)
@click.option("--overwrite", is_flag=True, help="Replace the contents of OUTPUT.")
@_with_choice
@_with_run
def export_command(
    run: SparkRun,
    store: Path,
    output: Path,
    *,
    overwrite: bool,
    **choice: Any,  # noqa: ANN401 - see _with_choice
) -> None:
    """Export the messages of the store in DIRECTORY to OUTPUT as Parquet, by topic and day.

    The store may be running.
    """
    with run.session() as (session, progress):
        from migration.spark.jobs import choose, export

        chosen = choose(store, **_of_times(choice))
        result = export(session, chosen, output, overwrite=overwrite, progress=progress)
    told = f"{_amount(result.messages, result.topics)} in {result.seconds:.1f} s"
    run.show(result.as_json(), f"{told}\n{output}")


def _amount(messages: int, topics: int) -> str:
    return f"{counted(messages, 'message')} of {counted(topics, 'topic')}"


def _of_times(choice: dict[str, Any]) -> dict[str, Any]:
    """The options for `choose`, with times in ms since 1970."""
    at = {name: choice[name] for name in ("since", "until") if choice[name] is not None}
    return choice | {name: datetime.fromtimestamp(ms / 1000, UTC) for name, ms in at.items()}


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except StoreLockedError as error:
        raise CommandError(str(error), "stop its server first") from error
    except StoreError as error:
        raise CommandError(str(error)) from error
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark.errors", "py4j.")):
            raise
        raise CommandError(_reason(str(error))) from error


def _reason(text: str) -> str:
    """The text of the last error in a traceback from an executor."""
    named = re.findall(
        r"^(?:Caused by: )?[\w.]+(?:Error|Exception): (.+)$", text, flags=re.MULTILINE
    )
    return named[-1] if named else text.strip().splitlines()[0]
