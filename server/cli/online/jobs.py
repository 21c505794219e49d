"""kvcq job …: start, list, show, cancel and watch jobs of a running server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kvcq_client import JobStatus
from server.cli.online.connection import command_at, connect, server_options
from server.cli.terminal import (
    EXIT_REFUSED,
    OFFSET,
    QUEUE,
    Bars,
    CommandError,
    InterruptedCommandError,
    Sections,
    camel_case,
    console,
    counted,
    document_of,
    print_json,
    print_next,
    print_table,
    say,
    text,
    time_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kvcq_client import Client, Job, JobFinding, Jobs

_FIELDS = """
    job_id kind scheduled step done total unit percent elapsed_s started_ms ended_ms summary error
"""
_FINDING = "fault place topic queue_id detail remedy count queue_offset physical_offset"
#: Words for the end of a job that did not succeed.
_NOT_DONE = {JobStatus.FAILED: "failed", JobStatus.CANCELLED: "was cancelled"}
#: Numbers of a job that count faults.
_FAULTS = {"scrub": ("damaged_records", "wrong_units")}
#: Most findings that are printed without --json.
SHOWN = 20


@click.group(cls=Sections)
def job() -> None:
    """Manage long-running jobs of a server."""


@job.group(cls=Sections)
def start() -> None:
    """Start a job. It runs in the server; `kvcq job watch` shows its progress."""


def _starting(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that all commands of `kvcq job start` have."""
    wait = click.option("--wait", is_flag=True, help="Watch the job, and return when it has ended.")
    return wait(server_options(command))


@start.command()
@click.option(
    "--family",
    type=text,
    help="Column family: default, index or offset. Without it: default and index.",
)
@click.option("--topic", type=text, help="Only rows of this topic or light queue.")
@_starting
def compact(family: str | None, topic: str | None, wait: bool, server: str, as_json: bool) -> None:
    """Compact RocksDB: free the space of expired and deleted rows."""
    start_job(
        lambda jobs: jobs.compact(family=family, topic=topic), server, wait=wait, as_json=as_json
    )


@start.command()
@click.option("--bytes-per-s", type=OFFSET, help="Maximum rate; by default the server's own.")
@click.option("--log-only", is_flag=True, help="Only verify records, not their units in queues.")
@_starting
def scrub(bytes_per_s: int | None, log_only: bool, wait: bool, server: str, as_json: bool) -> None:
    """Verify the CRC of every record in the log, and every queue unit against its record."""
    start_job(
        lambda jobs: jobs.scrub(bytes_per_s=bytes_per_s, log_only=log_only),
        *(server,),
        wait=wait,
        as_json=as_json,
    )


@start.command()
@click.argument("topic", type=text)
@click.option("--queue", "queue_id", type=QUEUE, help="Only this queue.")
@_starting
def rebuild(topic: str, queue_id: int | None, wait: bool, server: str, as_json: bool) -> None:
    """Rebuild the units of TOPIC, or of a light queue, from the log. No unit is removed."""
    start_job(lambda jobs: jobs.rebuild(topic, queue_id), server, wait=wait, as_json=as_json)


@start.command()
@_starting
def expire(wait: bool, server: str, as_json: bool) -> None:
    """Drop segments whose messages have all expired, without waiting for the configured hour."""
    start_job(lambda jobs: jobs.expire(), server, wait=wait, as_json=as_json)


@start.command("keep_latest")
@click.argument("topic", type=text, required=False)
@_starting
def keep_latest(topic: str | None, wait: bool, server: str, as_json: bool) -> None:
    """Hide all but the latest message of each key in TOPIC.

    TOPIC may be a light queue, or a prefix of light queues such as %LMQ%state-*. Without TOPIC: all
    topics with --latest. A message with an empty body deletes its key.
    """
    start_job(lambda jobs: jobs.keep_latest(topic), server, wait=wait, as_json=as_json)


@job.command("list")
@click.option("--kind", type=text, help="Only jobs of this kind.")
@server_options
def list_jobs(kind: str | None, server: str, as_json: bool) -> None:
    """List jobs, newest first. The server remembers the last 100 of each kind."""
    with connect(server) as client:
        found = client.jobs.list(kind)
    if as_json:
        print_json([_document(each) for each in found])
    elif found:
        print_table(
            "",
            ("job", "kind", "status", "percent", "s left", "started", "result"),
            [
                (
                    each.job_id,
                    _kind_of(each),
                    each.status.value,
                    f"{each.percent:.1f}",
                    "-" if each.remaining_s is None else f"{each.remaining_s:.0f}",
                    time_text(each.started_ms),
                    each.summary or each.error,
                )
                for each in found
            ],
        )
    else:
        say("no jobs")


@job.command()
@click.argument("job_id", type=text)
@server_options
def show(job_id: str, server: str, as_json: bool) -> None:
    """Show job JOB_ID and its findings. Exits with 1 if it did not succeed, or found faults."""
    with connect(server) as client:
        found = client.jobs.get(job_id)
    _show(found, server, as_json=as_json)


@job.command()
@click.argument("job_id", type=text)
@server_options
def cancel(job_id: str, server: str, as_json: bool) -> None:
    """Cancel job JOB_ID. A job that has already ended is not changed."""
    with connect(server) as client:
        found = client.jobs.cancel(job_id)
    if as_json:
        print_json(_document(found))
    elif found.status is JobStatus.RUNNING:
        say(f"cancelling {job_id}")
    else:
        say(f"{job_id} has already ended: {found.status.value}")


@job.command()
@click.argument("job_id", type=text)
@server_options
def watch(job_id: str, server: str, as_json: bool) -> None:
    """Watch job JOB_ID until it ends. Exits with 1 if it did not succeed, or found faults.

    Ctrl-C stops watching; the job continues.
    """
    with connect(server) as client:
        found = _watched(client, job_id, server)
    _show(found, server, as_json=as_json)


def start_job(begin: Callable[[Jobs], Job], server: str, *, wait: bool, as_json: bool) -> None:
    """Start a job with `begin`, and watch it if `wait`. Exits with 1 if a watched job did not
    succeed, or found faults."""
    with connect(server) as client:
        found = begin(client.jobs)
        if wait:
            found = _watched(client, found.job_id, server)
    if wait:
        _show(found, server, as_json=as_json)
    elif as_json:
        print_json(_document(found))
    else:
        say(f"started {_kind_of(found)}:")
        console.print(found.job_id)
        print_next(command_at(server, "job watch", name=found.job_id), None)


def _watched(client: Client, job_id: str, server: str) -> Job:
    """Show the job's progress until it ends. Returns the ended job."""
    last: Job | None = None
    try:
        with Bars() as bars:
            for last in client.jobs.watch(job_id):
                share = last.done / last.total if last.total else None
                bars.show(f"{last.kind}: {last.step}", share)
    except KeyboardInterrupt:
        raise InterruptedCommandError(
            "interrupted; the job continues on the server",
            f"`{command_at(server, 'job cancel', name=job_id)}` cancels it",
            command=command_at(server, "job watch", name=job_id),
        ) from None
    assert last is not None, "what is watched is told at once"
    return last


def _show(found: Job, server: str, *, as_json: bool) -> None:
    """Show the job. Exits with 1 if it did not succeed, or found faults."""
    if as_json:
        print_json(_document(found, findings=True))
    else:
        _print(found, server)
    if found.status in _NOT_DONE and not as_json:
        raise CommandError(
            f"job {found.job_id} {_NOT_DONE[found.status]}: {found.error}",
            command=command_at(server, "job list"),
        )
    # From the numbers, because a server keeps only these across a restart, not the findings.
    faults = sum(found.numbers.get(name, 0) for name in _FAULTS.get(found.kind, ()))
    if found.status in _NOT_DONE or found.findings or faults:
        click.get_current_context().exit(EXIT_REFUSED)


def _print(found: Job, server: str) -> None:
    console.print(f"{_kind_of(found)} {found.job_id}: {found.status.value}", highlight=False)
    rows: list[tuple[str, object]] = list(found.arguments.items())
    rows.append(("started", time_text(found.started_ms)))
    if found.ended_ms:
        rows.append(("ended", time_text(found.ended_ms)))
    else:
        rows.append(("step", found.step))
        rows.append((found.unit, f"{found.done:,} of {found.total or 0:,}"))
    if found.remaining_s is not None:
        rows.append(("seconds left", f"{found.remaining_s:,.0f}"))
    rows += [(name, f"{value:,}") for name, value in sorted(found.numbers.items())]
    if found.status is JobStatus.CANCELLED:
        rows.append(("why", found.error))
    if found.summary:
        rows.append(("result", found.summary))
    print_table("", ("what", "value"), rows)
    if found.findings:
        print_table(
            counted(len(found.findings), "finding"),
            ("place", "finding", "topic", "queue", "detail"),
            [
                (f.place, f.fault, f.topic or "", f.queue_id, f.detail)
                for f in found.findings[:SHOWN]
            ],
        )
        if len(found.findings) > SHOWN:
            say(f"{len(found.findings) - SHOWN:,} more; --json prints all of them")
        print_next(*_remedy(found.findings, server))


def _remedy(findings: Iterable[JobFinding], server: str) -> tuple[str | None, str | None]:
    """The next step for these findings: a command and a sentence."""
    topic = next((each.topic for each in findings if each.topic), "")
    if topic:
        return command_at(server, "job start rebuild", name=topic), None
    return None, "damaged records cannot be rebuilt: restore the segment from a backup or a replica"


def _kind_of(found: Job) -> str:
    return f"{found.kind} (scheduled)" if found.scheduled else found.kind


def _document(found: Job, *, findings: bool = False) -> dict[str, Any]:
    document = {
        **document_of(found, _FIELDS),
        "status": found.status.value,
        "arguments": camel_case(dict(found.arguments)),
        "remainingS": found.remaining_s,
        "numbers": camel_case(dict(found.numbers)),
        # Scripts rely on 0 and "" for absent values.
        "total": found.total or 0,
        "endedMs": found.ended_ms or 0,
        "summary": found.summary or "",
        "error": found.error or "",
    }
    if findings:
        document["findings"] = [
            {**document_of(each, _FINDING), "topic": each.topic or ""} for each in found.findings
        ]
    return document
