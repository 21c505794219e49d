"""kvcq migrate …: move a store between file queues and RocksDB, step by step."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvcq_client import JobStatus, MigrationPhase, MigrationStatus, MigrationStep
from migration.broker_config import reclaims_unexpired
from migration.plan import layout_given
from migration.release import Home
from migration.state import SideName
from migration.steps import KEY_EVERY
from server.cli.migration.ingest import ingest
from server.cli.migration.on_store import OnStore, existing_directory, on_store, opened
from server.cli.migration.shown import (
    SHOWN,
    faults_of,
    show_plan,
    show_status,
    show_verification,
)
from server.cli.terminal import (
    COUNT,
    EXIT_REFUSED,
    INT32_MAX,
    INT64_MAX,
    BadRequestError,
    CommandError,
    Sections,
    Whole,
    json_option,
    print_json,
    print_next,
    say,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from migration.state import FileLayout

detach_option = click.option(
    "--detach", is_flag=True, help="Do not wait for the job; `kvcq job watch` shows its progress."
)


def layout_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds options for sizes of RocketMQ's files that differ from its defaults."""
    for name, text in (
        (
            "--index-entries",
            "RocketMQ's maxIndexNum, if it was changed; by default read from the files.",
        ),
        (
            "--index-slots",
            "RocketMQ's maxHashSlotNum, if it was changed; by default read from the files.",
        ),
        ("--units-per-file", "Units of a queue file; by default read from the files."),
    ):
        command = click.option(name, type=Whole(1, INT64_MAX), help=text)(command)
    return command


class Steps(Sections):
    """The steps forward, the steps back, and commands for any state."""

    def sections(self) -> dict[str, tuple[str, ...]]:
        return {
            "Forward, in this order": ("plan", "start", "verify", "cutover", "finish"),
            "Back": ("rollback", "release"),
            "At any step": ("status", "resume", "ingest"),
        }


@click.group(cls=Steps)
def migrate() -> None:
    """Move a store from RocketMQ's file queues to RocksDB, and back, step by step.

    DIRECTORY is a stopped store; without it, the steps run on the server at --server. Exit codes: 0
    success, 1 differences or faults found, or the step is not possible now, 2 wrong usage, 3 cannot
    connect, 130 Ctrl-C.
    """


@migrate.command()
@layout_options
@click.option(
    "--limit",
    type=Whole(0, INT32_MAX),
    default=SHOWN,
    show_default=True,
    help="Maximum number of findings of each kind to show.",
)
@on_store
def plan(on: OnStore, limit: int, **sizes: int | None) -> None:
    """Show what a start would do: data, disk and time needed, and faults. Changes nothing."""
    found = on.target.plan(_layout(on, **sizes))
    if found.kind == "rocketmq":  # a start needs the same sizes
        given = {name: size for name, size in sizes.items() if size is not None}
        options = [f"--{name.replace('_', '-')} {size}" for name, size in given.items()]
        found = replace(found, next_command=" ".join((found.next_command or "", *options)))
    on.bars.rest()
    show_plan(found, limit, as_json=on.as_json)
    if faults_of(found) or found.blocking:
        raise SystemExit(EXIT_REFUSED)


@migrate.command()
@layout_options
@click.option(
    "--adopt-only", is_flag=True, help="Only take over RocketMQ's store, and stay on files."
)
@click.option(
    "--broker-conf",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The broker's broker.conf. If it has cleanFileForciblyEnable, a full disk removes the "
    "oldest messages; otherwise a full disk rejects puts.",
)
@detach_option
@on_store
def start(
    on: OnStore,
    *,
    adopt_only: bool,
    broker_conf: Path | None,
    detach: bool,
    **sizes: int | None,
) -> None:
    """Start writing to RocksDB as well, and backfill its history.

    A store that RocketMQ wrote is taken over first.
    """
    if broker_conf is not None and on.directory is None:
        raise click.UsageError(
            "--broker-conf needs DIRECTORY: it applies when a store is taken over"
        )
    answer = on.target.start(
        _layout(on, **sizes),
        adopt_only=adopt_only,
        reclaim_unexpired=None if broker_conf is None else reclaims_unexpired(broker_conf),
    )
    _end(on, answer, detach=detach)


@migrate.command()
@click.option("--wait", is_flag=True, help="Show progress until no job is running.")
@on_store
def status(on: OnStore, *, wait: bool) -> None:
    """Show the state of the migration and of both sides. `kvcq job list` shows running jobs."""
    found = on.target.status()
    while wait and found.running_job_id:
        on.target.wait(found.running_job_id)
        found = on.target.status()
    on.bars.rest()
    show_status(found, as_json=on.as_json)


@migrate.command()
@click.option(
    "--key-every",
    type=COUNT,
    default=KEY_EVERY,
    show_default=True,
    help="Verify the keys of one message in N.",
)
@click.option(
    "--limit",
    type=COUNT,
    default=SHOWN,
    show_default=True,
    help="Maximum number of differences to show.",
)
@detach_option
@on_store
def verify(on: OnStore, key_every: int, limit: int, *, detach: bool) -> None:
    """Compare the log, the files and RocksDB up to the current end. Exits with 1 if they differ."""
    answer = on.target.verify(key_every)
    if detach:
        show_status(answer.status, as_json=on.as_json)
        return
    assert answer.job_id is not None, "a verification is a job"
    found = _waited(on, answer.job_id)
    result = found.verified
    assert result is not None, "a verification that is done has a result"
    differences = on.target.differences(limit)
    on.bars.rest()
    show_verification(found, result, differences, as_json=on.as_json)
    if result.difference_count:
        raise SystemExit(EXIT_REFUSED)


@migrate.command()
@on_store
def cutover(on: OnStore) -> None:
    """Switch reads to RocksDB. Files are still written, so a rollback remains possible."""
    _end(on, on.target.cutover())


@migrate.command()
@click.option(
    "--to-files",
    is_flag=True,
    help="Also for a store without a migration: create RocketMQ's queue files from the log.",
)
@detach_option
@on_store
def rollback(on: OnStore, *, to_files: bool, detach: bool) -> None:
    """Go back one state; missing files are rebuilt from the log."""
    before = on.target.status()
    _end(on, on.target.rollback(to_files=to_files), detach=detach, since=before)


@migrate.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
@on_store
def finish(on: OnStore, *, yes: bool) -> None:
    """Remove the queue and index files, which are no longer read."""
    if not yes:
        found = on.target.status()
        _check_can_finish(found)
        on.bars.rest()
        if on.as_json or not sys.stdin.isatty():
            raise BadRequestError(
                "refusing to delete files without confirmation; add --yes",
                command=on.target.again("finish", "--yes"),
            )
        what = "all queue and index files: consumequeue/ and index/"
        click.confirm(f"Remove {what}?", abort=True, err=True)
    _end(on, on.target.finish())


@migrate.command()
@click.argument("directory", type=existing_directory)
@click.option(
    "--rocksdb",
    "home",
    flag_value=Home.ROCKSDB.value,
    help="For a broker with storeType=defaultRocksDB: hand over RocksDB.",
)
@click.option(
    "--files",
    "home",
    flag_value=Home.FILES.value,
    help="For a broker with storeType=default: hand over files; an old RocksDB of its own is "
    "removed.",
)
@json_option
def release(directory: Path, home: str | None, as_json: bool) -> None:
    """Hand the stopped store in DIRECTORY back to RocketMQ.

    Possible in state FILES, or with --rocksdb in VERIFIED or ROCKSDB. Topics and committed offsets
    are written to RocketMQ's config/; kvcq's own files are removed.
    """
    with opened(directory, "", as_json=as_json) as on:
        done = on.target.release(None if home is None else Home(home))
    if as_json:
        print_json({"done": done})
        return
    for line in done:
        say(line)
    print_next(None, "start the RocketMQ broker on this store")


@migrate.command()
@click.option(
    "--rebuild",
    type=click.Choice([side.value for side in SideName]),
    help="Move this side of a stopped store aside, and rebuild it from the log.",
)
@detach_option
@on_store
def resume(on: OnStore, rebuild: str | None, *, detach: bool) -> None:
    """Continue a migration that stopped, from where it was."""
    side = None if rebuild is None else SideName(rebuild)
    _end(on, on.target.resume(side), detach=detach)


# --- parts -------------------------------------------------------------------------------------


def _end(
    on: OnStore,
    answer: MigrationStep,
    *,
    detach: bool = False,
    since: MigrationStatus | None = None,
) -> None:
    """Wait for the step's job, unless `detach`, and show the result. `since`: the status before the
    step; events since then are shown as well."""
    found = answer.status
    if answer.job_id and not detach:
        found = _waited(on, answer.job_id)
    done = list(on.target.notes)
    if since is not None:
        known = {(each.time_ms, each.event) for each in since.history}
        done += [each.event for each in found.history if (each.time_ms, each.event) not in known]
    on.bars.rest()
    show_status(found, as_json=on.as_json, done=done)


def _waited(on: OnStore, job_id: str) -> MigrationStatus:
    """Wait for the job. Returns the status. Raises CommandError if the job did not succeed."""
    job = on.target.wait(job_id)
    found = on.target.status()
    if job.status is not JobStatus.DONE:
        raise CommandError(f"{job.kind}: {job.error}", found.hint, command=found.next_command)
    return found


def _check_can_finish(status: MigrationStatus) -> None:
    """Raise before the user is asked to confirm. The step itself checks again."""
    phase = status.phase
    why = ""
    if phase is None:
        why = "its queues are only in RocksDB"
    elif phase not in (MigrationPhase.ROCKSDB, MigrationPhase.FINISHED):
        why = "reads still come from files"
    elif status.pending_phase:
        why = "another step is under way"
    elif SideName.ROCKSDB.value in status.blamed_sides:
        why = "RocksDB differs from the log"
    if why:
        raise CommandError(
            f"finish is not possible{'' if phase is None else f' in state {phase.name}'}: {why}",
            status.hint,
            command=status.next_command,
            code="ILLEGAL_STEP",
        )


def _layout(
    on: OnStore, units_per_file: int | None, index_slots: int | None, index_entries: int | None
) -> FileLayout | None:
    """The file sizes for a stopped store; those not given are taken from its files. None for a
    running store, which knows its sizes."""
    if on.directory is None:
        return None
    return layout_given(on.directory, units_per_file, index_slots, index_entries)


migrate.add_command(ingest)
