"""kvcq check: verify the directory of a stopped store."""

from __future__ import annotations

import shlex
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvcq.engine.rocks import damage_mark
from kvcq.inspect import Kind, Remedy, size_text
from migration.check import examine_store
from migration.repair import rebuild_side_step
from migration.state import has_migration
from server.cli.on_disk.store_errors import leave_out_command, raising_command_errors
from server.cli.terminal import (
    COUNT,
    EXIT_REFUSED,
    Bars,
    console,
    counted,
    json_option,
    notes,
    print_json,
    print_table,
    say,
)
from server.process import prepare_to_open_stores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kvcq.inspect import Checked, CheckResult, Finding

#: Interval of progress lines if the output is not a terminal.
_LINE_S = 5.0


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--limit",
    type=COUNT,
    default=20,
    show_default=True,
    help="Maximum number of differences to show.",
)
@json_option
def check(directory: Path, limit: int, as_json: bool) -> None:
    """Verify the stopped store in DIRECTORY: records, queues, bounds and keys.

    During a migration, queue files and index files are verified as well. Nothing is changed. Exits
    with 1 and shows the first faults if there are any. What the next start repairs after a crash is
    reported as information, not as a fault; so is damage in the log that no queue refers to.
    """
    prepare_to_open_stores()  # a log may have more segments than descriptors are allowed
    with raising_command_errors(directory), _progress(quiet=as_json) as report:
        result = examine_store(directory, report)
    faults = [finding for finding in result.findings if finding.is_fault]
    if as_json:
        checked = result.checked
        print_json(
            {
                "directory": str(directory),
                "checked": {
                    "records": checked.records,
                    "units": checked.units,
                    "indexRows": checked.index_rows,
                    "bytes": checked.log_bytes,
                },
                "faults": _count(faults),
                "first": [finding.as_json() for finding in faults[:limit]],
                "remedies": [
                    {"hint": hint, "nextCommand": command}
                    for hint, command in remedies(directory, result.findings)
                ],
                "information": [one.as_json() for one in result.findings if not one.is_fault],
            }
        )
    else:
        _show(directory, result, faults, limit)
    if faults:
        raise SystemExit(EXIT_REFUSED)


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[str, float], None]]:
    """Show progress: bars on a terminal, otherwise lines; nothing with --json."""
    if quiet or notes.is_terminal:
        with Bars(quiet=quiet) as bars:
            yield bars.show
    else:
        yield ProgressLines(time.monotonic)


class ProgressLines:
    """Prints a line of progress every few seconds. A short check prints none."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._told = now()

    def __call__(self, step: str, share: float) -> None:
        if self._now() - self._told >= _LINE_S:
            self._told = self._now()
            say(f"{step}: {share:.0%}")


def _show(directory: Path, result: CheckResult, faults: Sequence[Finding], limit: int) -> None:
    for finding in result.findings:
        if not finding.is_fault:
            _print(finding.note or str(finding))
    checked = checked_text(result.checked)
    if not faults:
        is_lost = any(finding.kind is Kind.LEFT_OUT for finding in result.findings)
        _print(f"{directory}: nothing {'else ' if is_lost else ''}is wrong. {checked}")
        return
    shown = faults[:limit]
    columns = (
        ("what", [finding.kind.value for finding in shown]),
        ("where", [finding.place for finding in shown]),
        ("position", [finding.position for finding in shown]),
        ("topic", [finding.topic for finding in shown]),
        ("queue", [finding.queue_id for finding in shown]),
        ("offset", [finding.queue_offset for finding in shown]),
        ("physical offset", [finding.physical_offset for finding in shown]),
        ("expected", [finding.expected for finding in shown]),
        ("found", [_found(finding) for finding in shown]),
    )
    used = [(name, values) for name, values in columns if any(one is not None for one in values)]
    rows = zip(*(["" if one is None else one for one in values] for _, values in used), strict=True)
    print_table("", [name for name, _ in used], list(rows))
    count = _count(faults)
    _print(
        f"{counted(count, 'fault')} in {directory}. {checked}",
        *_remedy_lines(directory, result.findings),
    )


def _print(*lines: str) -> None:
    console.print(*lines, sep="\n", highlight=False, markup=False, soft_wrap=True)


def _found(finding: Finding) -> str:
    return finding.found if finding.count == 1 else f"{finding.found} ({finding.count:,} times)"


def checked_text(checked: Checked) -> str:
    """How much was checked, as a sentence."""
    return (
        f"Checked: {counted(checked.records, 'record')} in {size_text(checked.log_bytes)} of log, "
        f"{counted(checked.units, 'unit')}, {counted(checked.index_rows, 'index row')}."
    )


def _remedy_lines(directory: Path, findings: Sequence[Finding]) -> Iterator[str]:
    for hint, command in remedies(directory, findings):
        yield f"hint: {hint}"
        if command is not None:
            yield f"next: {command}"


def remedies(directory: Path, findings: Sequence[Finding]) -> list[tuple[str, str | None]]:
    """The remedy for each kind of fault found: a sentence, and a command or None."""
    faults = [finding for finding in findings if finding.is_fault]
    kinds = {finding.kind for finding in faults}
    advice: list[tuple[str, str | None]] = []
    queues: str | None = shlex.join(["kvcq", "repair", str(directory), "--queues"])
    if has_migration(directory):
        queues = rebuild_side_step("rocksdb").command(directory)
    elif any(finding.kind in (Kind.DAMAGED_RECORD, Kind.LEFT_OUT) for finding in findings):
        queues = leave_out_command(directory)
    # Not a reason to rebuild the database: it is correct if the lost end of the log can be
    # restored.
    passed = {Kind.AHEAD_OF_LOG}
    if damage_mark(directory / "kvcq").exists():  # the next start replaces this database
        passed.add(Kind.DATABASE)
    wanted = {each.remedy for each in faults if each.kind not in passed}
    derived = Remedy.REBUILD_DATABASE in wanted
    if Kind.DAMAGED_RECORD in kinds:
        hint = "a damaged record cannot be rebuilt: restore its message from a replica or a backup"
        leaves_out = not derived and not has_migration(directory)
        if leaves_out:
            hint += ". The command rebuilds the queues without it"
        advice.append((hint, queues if leaves_out else None))
    if kinds & {Kind.SHORT_LOG, Kind.SEGMENTS}:
        hint = "part of the log is missing: restore its segments from a replica or a backup"
        if Kind.SHORT_LOG in kinds:
            hint += (
                ". To continue without their messages, remove checkpoint and checkpoint.previous, "
                "which say how far the log was durable, and check again"
            )
        advice.append((hint, None))
    elif Kind.AHEAD_OF_LOG in kinds:
        hint = (
            "the queues refer to log that is missing: restore the missing segments from a "
            "copy. To continue without their messages, the command rebuilds the queues from "
            "the log that is left"
        )
        advice.append((hint, None if derived else queues))
    if Kind.TORN_TAIL in kinds:
        hint = (
            "this program never leaves bytes after the log's end: find out what else wrote "
            "into commitlog/, and copy the segment if those bytes may matter. The next "
            "start removes them"
        )
        advice.append((hint, None))
    if Kind.FALLING_TIME in kinds:
        hint = "store times that go back harm no message, but a search by time may be inexact there"
        advice.append((hint, None))
    if Kind.BATCH_PLACE in kinds:
        hint = "a batch that does not fit harms no message, but cannot be found by its number"
        advice.append((hint, None))
    if Kind.LOST_STATE in kinds:
        hint = (
            "the store cannot be opened: topics, groups and offsets from before the log's start "
            "are lost. Restore kvcq/ or snapshots/ from a backup, or let the command rebuild "
            "what the log still has"
        )
        advice.append((hint, shlex.join(["kvcq", "repair", str(directory), "--state"])))
    if any(each.kind is Kind.STATE and each.remedy is Remedy.RESTORE for each in faults):
        hint = (
            "rows of topics, groups or offsets contradict each other, and there is no snapshot to "
            "rebuild them from: restore a backup"
        )
        advice.append((hint, None))
    elif Kind.STATE in kinds:
        hint = (
            "topics, groups or offsets differ from what the log says: move the database aside, and "
            "the next start rebuilds it from a snapshot and the log"
        )
        aside = shlex.join(["mv", str(directory / "kvcq"), str(directory / "kvcq.aside")])
        advice.append((hint, aside))
    elif Kind.SNAPSHOT in kinds:
        places = sorted({each.place for each in faults if each.kind is Kind.SNAPSHOT})
        hint = "a damaged snapshot is never used: remove it, and the server takes another"
        advice.append((hint, shlex.join(["rm", "-r", *(str(directory / each) for each in places)])))
    if not derived and Kind.DAMAGED_RECORD not in kinds:
        if Kind.DATABASE in kinds:
            hint = (
                "start the server: it moves the damaged kvcq/ aside, and rebuilds it from the "
                "newest snapshot and the log"
            )
            advice.append((hint, None))
        elif Kind.OLD_DATABASE in kinds:
            advice.append(("start the server: it brings kvcq/ up to date from the log", None))
    if Kind.IDENTITY in kinds:
        places = sorted({each.place for each in findings if each.kind is Kind.IDENTITY})
        advice.append((f"restore {' and '.join(places)} from a backup of the directory", None))
    if Kind.CHECKPOINT_FILE in kinds:
        hint = (
            "nothing to do: the next start uses the other checkpoint file, or scans the "
            "whole log, and rewrites this one"
        )
        advice.append((hint, None))
    if any(each.kind is Kind.NOTE and each.remedy is Remedy.RESTORE for each in faults):
        hint = (
            "the server does not start with a damaged notes/users: restore it from a backup, or "
            "remove it and add the users again"
        )
        advice.append((hint, None))
    elif Kind.NOTE in kinds:
        hint = "nothing to do: the next start makes the note again, or continues without it"
        advice.append((hint, None))
    if Kind.DEAD_ROW in kinds:
        hint = (
            "kvcq/ has rows of topics that do not exist: the command rebuilds the queues of those "
            "that do"
        )
        advice.append((hint, None))
    if derived:
        advice.append(("the command rebuilds queues, bounds and index rows from the log", queues))
    if Remedy.REBUILD_FILES in wanted:
        hint = "the command rebuilds queue files and index files from the log"
        advice.append((hint, rebuild_side_step("files").command(directory)))
    return advice


def _count(findings: Sequence[Finding]) -> int:
    """Number of findings, including those that are only counted."""
    return sum(finding.count for finding in findings)
