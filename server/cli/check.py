"""kvcq check: verify the directory of a stopped store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.progress import Progress

from migration.check import check_store
from server.cli.output import (
    EXIT_REFUSED,
    CommandError,
    json_option,
    notes,
    print_json,
    print_table,
)
from store.errors import StoreError, StoreLockedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.progress import TaskID

    from migration.check import Finding


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--limit", type=click.IntRange(1), default=20, show_default=True, help="Differences to show."
)
@json_option
def check(directory: Path, limit: int, as_json: bool) -> None:  # noqa: FBT001 - click's way
    """Verify the stopped store in DIRECTORY: every record, queue, bound and key row of it.

    Nothing is changed. Exits with 1, and shows the first differences, when something is wrong.
    What a crash leaves and the next start sets right is told, and is not wrong.
    """
    try:
        with Progress(console=notes, transient=True, disable=as_json) as progress:
            tasks: dict[str, TaskID] = {}

            def report(step: str, share: float) -> None:
                if step not in tasks:
                    tasks[step] = progress.add_task(step, total=1.0)
                progress.update(tasks[step], completed=share)

            findings = check_store(directory, report)
    except StoreLockedError as error:
        advice = "stop its server first: check looks at a stopped store"
        raise CommandError(str(error), advice) from error
    except StoreError as error:
        advice = "is this the directory that kvcq serve --data names?"
        raise CommandError(str(error), advice) from error
    faults = [finding for finding in findings if finding.is_fault]
    if as_json:
        print_json(
            {
                "directory": str(directory),
                "faults": _count(faults),
                "first": [_document(finding) for finding in faults[:limit]],
                "information": [_document(one) for one in findings if not one.is_fault],
            }
        )
    else:
        _show(directory, findings, faults, limit)
    if faults:
        raise SystemExit(EXIT_REFUSED)


def _show(
    directory: Path, findings: Sequence[Finding], faults: Sequence[Finding], limit: int
) -> None:
    for finding in findings:
        if not finding.is_fault:
            notes.print(f"{finding}: the next start sees to it", highlight=False, markup=False)
    if not faults:
        notes.print(f"{directory}: nothing is wrong", highlight=False, markup=False)
        return
    print_table(
        "",
        ("what", "where", "topic", "queue", "offset", "physical offset", "expected", "found"),
        [
            (
                finding.kind.value,
                finding.place,
                *map(
                    _or_nothing,
                    (
                        finding.topic,
                        finding.queue_id,
                        finding.queue_offset,
                        finding.physical_offset,
                    ),
                ),
                finding.expected,
                finding.found
                if finding.count == 1
                else f"{finding.found} ({finding.count:,} times)",
            )
            for finding in faults[:limit]
        ],
    )
    notes.print(
        f"{_count(faults):,} faults in {directory}; `kvcq repair --queues` makes queues, bounds "
        "and key rows again from the log, it cannot mend the log",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def _count(findings: Sequence[Finding]) -> int:
    """All of them, also those that are not listed one by one."""
    return sum(finding.count for finding in findings)


def _or_nothing(value: object) -> object:
    return "" if value is None else value


def _document(finding: Finding) -> dict[str, object]:
    return {
        "kind": finding.kind.value,
        "place": finding.place,
        "topic": finding.topic,
        "queueId": finding.queue_id,
        "queueOffset": finding.queue_offset,
        "physicalOffset": finding.physical_offset,
        "expected": finding.expected,
        "found": finding.found,
        "count": finding.count,
    }
