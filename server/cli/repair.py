"""kvcq repair: make again from the log what can be made from it."""

from __future__ import annotations

from pathlib import Path

import click
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from migration.opening import open_store
from migration.repair_metadata import repair_metadata
from migration.repair_queues import set_queues_aside
from server.cli.output import CommandError, json_option, notes, print_json
from store.config import StoreConfig
from store.errors import StoreError
from store.store_dir import inspect


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--metadata", "what", flag_value="metadata", help="Make the topics of a lost meta/ again."
)
@click.option("--queues", "what", flag_value="queues", help="Make kvcq/ again, all of it.")
@json_option
def repair(directory: Path, what: str | None, as_json: bool) -> None:  # noqa: FBT001 - by name
    """Make topics or queues of a stopped store DIRECTORY again from its log.

    What was there is kept under another name. Committed offsets are not in the log: --metadata
    works only when meta/ is missing or cannot be opened, and topics that had been deleted come
    back with their messages.
    """
    if what is None:
        raise click.UsageError("say what to make again: --metadata or --queues")
    try:
        with _bar() as progress:
            task = progress.add_task("", total=1.0)

            def show(step: str, share: float) -> None:
                progress.update(task, description=step, completed=share)

            if what == "metadata":
                topics = repair_metadata(directory, show)
                result: dict[str, object] = {"repaired": "metadata", "topics": len(topics)}
            else:
                _, identity = inspect(directory)
                set_queues_aside(directory)
                assert identity is not None, "set_queues_aside takes only stores of ours"
                config = StoreConfig(root=directory, segment_bytes=identity.segment_bytes)
                with open_store(config, progress=show) as store:
                    result = {"repaired": "queues", "dispatched_offset": store.log.appended_offset}
    except StoreError as error:
        raise CommandError(str(error), f"look closer with: kvcq check {directory}") from error
    if as_json:
        print_json(result)
    else:
        notes.print(f"repaired {what}: {result}", highlight=False)


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=notes,
        transient=True,
    )
