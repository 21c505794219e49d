"""kvcq repair: rebuild queues or state from the log."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvcq.opening import open_store
from migration.repair import repair_state, set_queues_aside
from server.cli.on_disk.store_errors import raising_command_errors
from server.cli.terminal import Bars, counted, json_option, print_json, say
from server.process import prepare_to_open_stores
from store.config import StoreConfig

if TYPE_CHECKING:
    from collections.abc import Callable


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--state", "what", flag_value="state", help="Rebuild topics and groups from the log alone."
)
@click.option("--queues", "what", flag_value="queues", help="Rebuild all queues and indexes.")
@click.option(
    "--skip-damaged",
    is_flag=True,
    help="With --queues: skip damaged records; readers get an error for them.",
)
@json_option
def repair(directory: Path, what: str | None, skip_damaged: bool, as_json: bool) -> None:
    """Rebuild queues or state of the stopped store in DIRECTORY from its log.

    The old database is kept under another name. --state is for a store that has lost both kvcq/ and
    snapshots/: it restores topics, groups and offsets as far as the log still contains them.
    """
    if what is None:
        raise click.UsageError("give --queues or --state")
    if skip_damaged and what != "queues":
        raise click.UsageError("--skip-damaged needs --queues")
    prepare_to_open_stores()
    left_out = 0
    with raising_command_errors(directory), Bars() as bars:
        if what == "state":
            made = repair_state(directory, bars.show)
            result: dict[str, object] = {"repaired": None, "topics": None}
            if made is not None:
                result = {
                    "repaired": "state",
                    "topics": made.topics,
                    "groups": made.groups,
                    "logStart": made.log_start,
                }
        else:
            result, left_out = _repair_queues(directory, bars.show, skip_damaged=skip_damaged)
    if as_json:
        print_json(result)
    elif result["repaired"] is None:
        say("nothing to repair: the next start rebuilds the state from the database or a snapshot")
    elif what == "state":
        say(
            f"restored {result['topics']} topics and {result['groups']} groups from the log. "
            f"Changes before its first byte, {result['logStart']:,}, are lost. The next start "
            "rebuilds the queues.",
        )
    else:
        say(
            f"rebuilt kvcq/ from {result['dispatchedOffset']:,} bytes of log"
            + (f", without {counted(left_out, 'damaged place')}" if left_out else "")
            + (
                f"; the old database is {result['old']}: remove it once the new one works"
                if result["old"]
                else ""
            ),
        )


def _repair_queues(
    directory: Path, show: Callable[[str, float], None], *, skip_damaged: bool
) -> tuple[dict[str, object], int]:
    """Rebuild the queues. Returns what was done, for --json, and the number of damaged places that
    were skipped.

    If the new database cannot be created, the old one gets its name back.
    """
    aside = set_queues_aside(directory, show, skip_damaged=skip_damaged)
    config = StoreConfig(
        root=directory,
        segment_bytes=aside.segment_bytes,
        skip_damaged_records=skip_damaged,
    )
    try:
        with open_store(config, progress=show) as store:
            end = store.log.appended_offset
    except BaseException:
        if aside.path is not None:
            shutil.rmtree(directory / "kvcq", ignore_errors=True)
            aside.path.rename(directory / "kvcq")
        raise
    left_out = len(aside.damage)
    return {
        "repaired": "queues",
        "dispatchedOffset": end,
        "leftOut": left_out,
        "old": None if aside.path is None else str(aside.path),
    }, left_out
