"""Shows a migration's plan, status and differences, for people and for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.cli.migration.plain import plain
from server.cli.terminal import escape, notes, print_json, print_next, print_table, time_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcq_client import (
        Difference,
        MigrationFinding,
        MigrationPlan,
        MigrationStatus,
        VerifyResult,
    )

SHOWN = 20
_LEFT_ALONE = "leave it where it is"


def faults_of(found: MigrationPlan) -> list[MigrationFinding]:
    """The findings that are faults, not only information."""
    return [each for each in found.findings if each.remedy != _LEFT_ALONE]


def show_status(
    status: MigrationStatus, *, as_json: bool, done: Sequence[str] | None = None
) -> None:
    """Show the status. `done`: what a step did, one line each; None for other commands."""
    if as_json:
        document = plain(status)
        print_json(document if done is None else {**document, "done": list(done)})
        return
    lines = list(done or ())
    for line in lines[:SHOWN]:
        _say(f"[bold]done:[/]  {escape(line)}")
    if len(lines) > SHOWN:
        _say(f"       and {len(lines) - SHOWN:,} more; --json prints all of them")
    if status.phase is not None:
        print_table("", ("state", "reads come from", "written to"), [_served(status.phase.name)])
    if status.stopped:
        _say(f"[bold red]stopped:[/] {escape(status.stopped)}")
    if status.pending_phase:
        _say(f"changing to {status.pending_phase.name}")
    print_table(
        "sides",
        ("side", "dispatched up to", "bytes behind", "live", "failure"),
        [
            (s.name, s.dispatched_offset, s.behind_bytes, s.joined, s.failure or "-")
            for s in status.sides
        ],
    )
    if status.running_job_id:
        _say(f"job {status.running_job_id} runs")
    if status.verify_broken_off:
        _say(
            f"the last verification was aborted: {escape(status.verify_broken_off)}. The next one "
            "starts over"
        )
    if (result := status.verified) is not None:
        _say(
            f"last verification: {result.compared_units:,} units, "
            f"{result.difference_count:,} differences, {time_text(result.finished_ms)}"
        )
    print_next(status.next_command, status.hint)


def _served(phase: str) -> tuple[str, str, str]:
    reads = "RocksDB" if phase in ("ROCKSDB", "FINISHED") else "files"
    written = {"FILES": "files", "FINISHED": "RocksDB"}.get(phase, "files, RocksDB")
    return phase, reads, written


def show_verification(
    found: MigrationStatus,
    result: VerifyResult,
    differences: Sequence[Difference],
    *,
    as_json: bool,
) -> None:
    if as_json:
        print_json({**plain(found), "differences": [plain(each) for each in differences]})
        return
    _say(
        f"compared {result.compared_units:,} units below physical offset "
        f"{result.cut_offset:,}: {result.difference_count:,} differences"
    )
    if differences:
        print_table(
            "differences",
            ("topic", "queue", "offset", "field", "side", "in the log", "in the side"),
            [tuple(plain(each).values()) for each in differences],
        )
        if len(differences) < result.difference_count:
            _say(f"{result.difference_count - len(differences):,} more")
    print_next(found.next_command, found.hint)


def show_plan(found: MigrationPlan, limit: int, *, as_json: bool) -> None:
    """Show the plan. `limit`: most rows of each table."""
    if as_json:
        print_json(plain(found))
        return
    faults = faults_of(found)
    passed_over = [each for each in found.findings if each.remedy == _LEFT_ALONE]
    count = f"{'about ' if found.messages_are_estimated else ''}{found.messages:,}"
    ours = f"ours, {found.phase}" if found.phase else "kvcq's, without a migration"
    too_few = "too few messages to measure"
    print_table(
        "",
        ("what", "value"),
        [
            ("store", "RocketMQ's" if found.kind == "rocketmq" else ours),
            ("segments", f"{found.segments:,}"),
            ("log", f"{found.log_bytes:,} bytes"),
            ("to replay", f"{found.bytes_to_replay:,} bytes"),
            ("messages", count),
            ("topics, queues", f"{found.topics:,}, {found.queues:,}"),
            (
                "measured here",
                f"{found.units_per_s:,.0f} units/s, {found.bytes_per_unit:.1f} bytes each"
                if found.units_per_s is not None
                else too_few,
            ),
            ("disk needed", f"{found.disk_needed_bytes:,} of {found.disk_free_bytes:,} free bytes"),
            (
                "time expected",
                f"{found.expected_s:,.1f} s" if found.expected_s is not None else "-",
            ),
            *(
                [("queues only in RocketMQ's RocksDB", f"{found.queues_in_rocksdb:,}")]
                if found.queues_in_rocksdb
                else []
            ),
            ("faults", f"{len(faults):,}"),
            ("left where they are", f"{len(passed_over):,}"),
            ("dead records", f"{sum(each.records for each in found.dead):,}"),
        ],
    )
    if found.config:
        print_table(
            "topics, groups and offsets of the broker",
            ("where", "kept as", "holds", "rows", "offsets", "what happens to it"),
            [(t.path, t.form, t.holds, t.rows, t.offsets, t.detail) for t in found.config],
        )
    if found.held_back:
        print_table(
            "what the broker has not delivered yet, and what becomes of it here",
            ("what", "topic", "in the log", "not delivered yet", "becomes"),
            [
                (
                    each.kind,
                    each.topic,
                    f"{each.records:,}",
                    f"{each.waiting:,}",
                    each.outcome,
                )
                for each in found.held_back
            ],
        )
    if found.dead[:limit]:
        print_table(
            "records of topics and light queues that RocketMQ deleted (not taken over)",
            ("name", "dead records", "generations", "lives from"),
            [
                (
                    each.name,
                    f"{each.records:,}",
                    f"{each.generations:,}",
                    f"{each.live_from:,}" if each.live_from is not None else "deleted",
                )
                for each in found.dead[:limit]
            ],
        )
    for title, each in (("faults, and their remedies", faults), ("left alone", passed_over)):
        if each[:limit]:
            print_table(
                title,
                ("file", "position", "finding", "detail", "remedy"),
                [(f.path, f.position, f.fault, f.detail, f.remedy) for f in each[:limit]],
            )
            if len(each) > limit:
                _say(f"{len(each) - limit:,} more: --limit {len(each)}")
    for reason in found.blocking:
        _say(f"[bold red]blocked by:[/] {escape(reason)}")
    print_next(found.next_command, found.hint)


def _say(text: str) -> None:
    notes.print(text, highlight=False, soft_wrap=True)
