"""kvcq backup and kvcq restore: take backups of a running server, list, verify, restore them."""

from __future__ import annotations

import shlex
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from server.cli.online import server_options, start_job
from server.cli.terminal import (
    COUNT,
    EXIT_REFUSED,
    OFFSET,
    TIME,
    TIMES,
    BadRequestError,
    Bars,
    CommandError,
    Sections,
    console,
    counted,
    json_option,
    print_json,
    print_next,
    print_table,
    say,
    text,
    time_text,
)
from server.process import prepare_to_open_stores
from store.errors import InvalidArgumentError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcq.backup import Backup, Broken

#: Most broken files that are printed without --json.
_SHOWN = 20
_OPTIONS = {"until_ms": "--until", "until_offset": "--until-offset"}


class _Target(click.ParamType[str]):
    """A place with backups. If it is missing, the error says which forms are valid."""

    name = "target"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return text(value)

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        command = "list" if ctx is None else ctx.info_name
        return (
            f"A directory or s3://BUCKET/PREFIX, such as: kvcq backup {command} /backups. `kvcq "
            "config running` shows a server's own as server.backup_to"
        )


_target = click.argument("target", type=_Target())
_id = click.option(
    "--backup",
    "backup_id",
    type=text,
    metavar="ID",
    help="Only this backup; `kvcq backup list` shows the ids.",
)


@click.group(cls=Sections)
def backup() -> None:
    """Back up a running server; list, verify and prune backups in a directory or bucket."""


@backup.command()
@click.argument("target", type=text, required=False)
@click.option(
    "--bytes-per-s",
    type=OFFSET,
    help="Maximum bytes read per second; by default 64 MiB.",
)
@click.option(
    "--link",
    is_flag=True,
    help="Hard-link files that never change instead of copying them, where possible.",
)
@click.option(
    "--detach",
    is_flag=True,
    help="Do not wait for the backup; `kvcq job watch` shows its progress.",
)
@server_options
def create(
    target: str | None,
    bytes_per_s: int | None,
    link: bool,
    detach: bool,
    server: str,
    as_json: bool,
) -> None:
    """Back up the store of a running server to TARGET, and wait until it is done.

    TARGET must be in server.backup_to, or below one of its entries; by default the first entry.
    Files of earlier backups are not copied again. Ctrl-C stops waiting, not the backup.
    """
    start_job(
        lambda jobs: jobs.backup(target, bytes_per_s=bytes_per_s, link=link),
        *(server,),
        wait=not detach,
        as_json=as_json,
    )


@backup.command("list")
@_target
@json_option
def list_command(target: str, as_json: bool) -> None:
    """List the complete backups in TARGET (a directory or s3://BUCKET/PREFIX), oldest first."""
    from kvcq.backup import list_backups, open_place

    with _errors():
        found = list_backups(open_place(target))
    if as_json:
        print_json([_document(each) for each in found])
    elif found:
        print_table(
            "",
            ("backup", "taken", "log from", "log to", "files", "bytes"),
            [
                (
                    each.backup_id,
                    time_text(each.taken_ms),
                    each.start_offset,
                    each.end_offset,
                    len(each.files),
                    each.size,
                )
                for each in found
            ],
        )
    else:
        say("no complete backups")


@backup.command()
@_target
@_id
@json_option
def verify(target: str, backup_id: str | None, as_json: bool) -> None:
    """Read the backups in TARGET and compare checksums. Changes nothing.

    Exits with 1 if a file is missing or damaged.
    """
    from kvcq.backup import open_place
    from kvcq.backup import verify as verify_backups

    with _errors(), Bars(quiet=as_json) as bars:
        found = verify_backups(open_place(target), backup_id, bars.show)
    if as_json:
        print_json(
            {
                "target": target,
                "backups": found.backups,
                "files": found.files,
                "bytes": found.size,
                "unusedFiles": found.unused,
                "broken": [
                    {"name": one.name, "reason": one.reason, "backups": list(one.backups)}
                    for one in found.broken
                ],
            }
        )
    else:
        looked = f"{counted(found.backups, 'backup')}, {counted(found.files, 'file')}"
        say(f"{target}: {looked}, {found.size:,} bytes were read")
        _tell_broken(target, found.broken)
    if found.broken:
        raise SystemExit(EXIT_REFUSED)


@backup.command()
@_target
@click.option("--keep", type=COUNT, required=True, help="Number of newest backups to keep.")
@click.option(
    "--yes", is_flag=True, help="Remove them; without it, only show what would be removed."
)
@json_option
def prune(target: str, keep: int, yes: bool, as_json: bool) -> None:
    """Remove old backups in TARGET, and the files that no other backup needs.

    Do not run this while a backup to TARGET is under way.
    """
    from kvcq.backup import open_place
    from kvcq.backup import prune as prune_backups

    with _errors():
        found = prune_backups(open_place(target), keep, only_tell=not yes)
    if as_json:
        print_json(
            {
                "target": target,
                "removed": yes,
                "backups": list(found.backup_ids),
                "files": found.files,
                "bytes": found.size,
            }
        )
        return
    text_of = f"{counted(len(found.backup_ids), 'backup')}, {counted(found.files, 'file')}"
    done = "removed" if yes else "to be removed"
    say(f"{done}: {text_of}, {found.size:,} bytes")
    if not yes and (found.backup_ids or found.files):
        command = ["kvcq", "backup", "prune", target, "--keep", str(keep), "--yes"]
        print_next(shlex.join(command), None)


def _tell_broken(target: str, broken: tuple[Broken, ...]) -> None:
    if not broken:
        say("no problems found")
        return
    print_table(
        counted(len(broken), "broken file"),
        ("file", "what", "backups that need it"),
        [(one.name, one.reason, " ".join(one.backups)) for one in broken[:_SHOWN]],
    )
    if len(broken) > _SHOWN:
        say(f"{len(broken) - _SHOWN:,} more; --json prints all of them")
    hint = "remove the file, and the next backup copies it again if the store still has it"
    if "://" in target:
        print_next(None, hint)
    else:
        print_next(shlex.join(["rm", str(Path(target) / broken[0].name)]), hint)


@click.command(epilog=TIMES)
@_target
@click.argument("directory", type=click.Path(path_type=Path))
@_id
@click.option("--until", "until_ms", type=TIME, help="Leave out messages stored later.")
@click.option("--until-offset", type=OFFSET, help="Truncate the log at this physical offset.")
@click.option(
    "--segments-only", is_flag=True, help="Only restore the log; the queues are rebuilt from it."
)
@json_option
def restore(
    target: str,
    directory: Path,
    backup_id: str | None,
    until_ms: int | None,
    until_offset: int | None,
    segments_only: bool,
    as_json: bool,
) -> None:
    """Restore a backup in TARGET (a directory or s3://BUCKET/PREFIX) to the new store DIRECTORY.

    By default the newest backup; with --until or --until-offset, the oldest one that reaches that
    point. Topics, groups and committed offsets are as they were at that point.
    """
    from kvcq.backup import Cut, choose_backup, choose_by_id, open_place
    from kvcq.backup import restore as restore_backup
    from server.access import key_to_bring

    prepare_to_open_stores()  # a log may have more segments than descriptors are allowed
    if until_ms is not None and until_offset is not None:
        raise click.UsageError("--until and --until-offset: give one of them")
    with _errors():
        place = open_place(target)
        if backup_id is None:
            chosen = choose_backup(place, until_ms=until_ms, until_offset=until_offset)
        else:
            chosen = choose_by_id(place, backup_id)
    with _errors(), Bars(quiet=as_json) as bars:
        done = restore_backup(
            place,
            chosen,
            directory,
            Cut(until_ms, until_offset),
            segments_only=segments_only,
            progress=bars.show,
        )
        key_file = key_to_bring(directory)
    check = shlex.join(["kvcq", "check", str(directory)])
    if as_json:
        print_json(
            {
                "directory": str(directory),
                "backupId": chosen.backup_id,
                "endOffset": done.end_offset,
                "lastStoreTimeMs": done.last_time_ms,
                "bytes": done.size,
                "heldFromOffset": done.held_from,
                "keyFile": None if key_file is None else str(key_file),
                "nextCommand": check,
            }
        )
        return
    last = f"; its last message was stored {time_text(done.last_time_ms)}"
    console.print(
        f"{directory} is restored from backup {chosen.backup_id}, with the log up to "
        f"{done.end_offset:,}{last if done.last_time_ms else ''}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    if done.held_from is not None:
        say(
            "delayed messages, open transactions and dead letters that were then older than the "
            "log of the backup may be missing: they are only in the part that was cut off. A cut "
            f"at {done.held_from:,} or later has all of its time"
        )
    hint = "before serving it, note that messages older than store.reserved_hours then expire"
    if key_file is not None:
        hint = (
            "the store has users, whose secrets are sealed with a key that backups do not "
            f"contain: copy the original store's key file to {key_file}, or give it with --set "
            f"server.key_file=…, and serve with --access; {hint}"
        )
    print_next(check, hint)


def _document(found: Backup) -> dict[str, object]:
    return {
        "backupId": found.backup_id,
        "takenMs": found.taken_ms,
        "startOffset": found.start_offset,
        "endOffset": found.end_offset,
        "files": len(found.files),
        "bytes": found.size,
    }


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except InvalidArgumentError as error:
        option = _OPTIONS.get(error.field, error.field)
        raise BadRequestError(f"{option}: {error.reason}", field=error.field) from error
    except StoreError as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        raise CommandError(f"{error.filename or 'the disk'}: {error.strerror}") from error
