"""kvcq migrate …: move a store between file queues and RocksDB, step by step."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from migration.broker_config import reclaims_unexpired
from migration.legacy import layout_given
from migration.release import Home
from migration.routes import SideName
from migration.routing import Route, RoutingPolicy, parse_rules
from migration.verify import VerifyOptions
from proto.v1 import migration_pb2 as pb
from server.cli.connection import server_option
from server.cli.ingest import ingest
from server.cli.migration_target import job_of, local_target, remote_target
from server.cli.output import (
    EXIT_REFUSED,
    BadRequestError,
    CommandError,
    json_option,
    notes,
    print_json,
    print_table,
    time_text,
)
from server.cli.screen import escape
from server.cli.values import COUNT, INT32_MAX, INT64_MAX, Whole
from server.migration_convert import plain
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.progress import TaskID

    from migration.state import FileLayout
    from server.cli.migration_target import Target, Watch

_SIDES = frozenset(side.value for side in SideName)
_SHOWN = 20

directory_argument = click.argument(
    "directory", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path)
)
detach_option = click.option(
    "--detach", is_flag=True, help="Do not wait for the job; `status` tells how it goes."
)
route_option = click.option(
    "--route",
    "routes",
    multiple=True,
    metavar="PATTERN=ROUTE",
    help="Where a topic, light queue, or prefix with * goes: files, rocksdb or both. In order.",
)
default_option = click.option(
    "--default",
    "default_route",
    type=click.Choice([route.value for route in Route]),
    help="Where all others go.  [default: both]",
)


def layout_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Sizes of RocketMQ's files, where they are not its defaults."""
    for name, text in (
        (
            "--index-entries",
            "RocketMQ's maxIndexNum, if it was changed; else taken from the files.",
        ),
        (
            "--index-slots",
            "RocketMQ's maxHashSlotNum, if it was changed; else taken from the files.",
        ),
        ("--units-per-file", "Units of a queue file; else taken from the files."),
    ):
        command = click.option(name, type=Whole(1, INT64_MAX), help=text)(command)
    return command


class Steps(click.Group):
    """Lists its commands in the order in which they are used, which is that of this file."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=Steps)
def migrate() -> None:
    """Move a store from RocketMQ's file queues to RocksDB, and back, step by step.

    With a DIRECTORY: a stopped store. Without: the running one at --server.
    Order: plan, start, verify, cutover, finish; back with rollback from each, and to RocketMQ with
    release.
    Exit codes: 0 well, 1 differences or faults found, or a step that is not possible now, 2 wrong
    usage, 3 cannot connect, 130 Ctrl-C.
    """


@migrate.command()
@directory_argument
@server_option
@layout_options
@click.option(
    "--limit",
    type=Whole(0, INT32_MAX),
    default=_SHOWN,
    show_default=True,
    help="Findings of a kind to show.",
)
@json_option
def plan(
    directory: Path | None,
    server: str,
    units_per_file: int | None,
    index_slots: int | None,
    index_entries: int | None,
    limit: int,
    as_json: bool,  # noqa: FBT001 - click passes by name
) -> None:
    """Say what starting would do: bytes, disk and time needed, faults. Changes nothing."""
    with _target(directory, server, quiet=as_json) as (where, watch):
        layout = _layout(directory, units_per_file, index_slots, index_entries)
        found = where.plan(layout, watch)
        if found.kind == "rocketmq":  # a start needs the sizes that were said here
            found.next_command += _sizes(units_per_file, index_slots, index_entries)
    faults = [each for each in found.findings if each.remedy != _LEFT_ALONE]
    if as_json:
        print_json(plain(found))
    else:
        _show_plan(found, limit)
    if faults or found.blocking:
        raise SystemExit(EXIT_REFUSED)


@migrate.command()
@directory_argument
@server_option
@route_option
@default_option
@layout_options
@click.option("--adopt-only", is_flag=True, help="Take RocketMQ's store over; stay on files.")
@click.option(
    "--broker-conf",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The broker's settings: with cleanFileForciblyEnable a full disk costs the oldest "
    "messages there; without the file they stay, and puts are refused.",
)
@detach_option
@json_option
def start(
    directory: Path | None,
    server: str,
    routes: tuple[str, ...],
    default_route: str | None,
    units_per_file: int | None,
    index_slots: int | None,
    index_entries: int | None,
    adopt_only: bool,  # noqa: FBT001 - click passes by name
    broker_conf: Path | None,
    detach: bool,  # noqa: FBT001 - click passes by name
    as_json: bool,  # noqa: FBT001 - click passes by name
) -> None:
    """Begin to write RocksDB as well, and fill in the history.

    A DIRECTORY that RocketMQ wrote is taken over first.
    """
    routing = _policy(routes, default_route)
    if broker_conf is not None and directory is None:
        raise click.UsageError("--broker-conf is for a DIRECTORY that is taken over")
    with _target(directory, server, quiet=as_json) as (where, watch):
        layout = _layout(directory, units_per_file, index_slots, index_entries)
        reclaims = None if broker_conf is None else reclaims_unexpired(broker_conf)
        answer = where.start(
            routing, layout, watch, adopt_only=adopt_only, reclaim_unexpired=reclaims
        )
        _end(where, answer, watch, detach=detach, as_json=as_json)


@migrate.command()
@directory_argument
@server_option
@click.option("--wait", is_flag=True, help="Show progress until no job runs.")
@json_option
def status(directory: Path | None, server: str, wait: bool, as_json: bool) -> None:  # noqa: FBT001
    """Show the state, both sides, and the jobs."""
    with _target(directory, server, quiet=as_json) as (where, watch):
        found = where.status()
        if wait:
            for job in [each for each in found.jobs if each.state == pb.JOB_STATE_RUNNING]:
                found = where.wait(job.job_id, watch)
    _show_status(found, as_json=as_json)


@migrate.command()
@directory_argument
@server_option
@click.option(
    "--key-every",
    type=COUNT,
    default=VerifyOptions().key_every,
    show_default=True,
    help="Look up the keys of one message in N.",
)
@click.option("--limit", type=COUNT, default=_SHOWN, show_default=True, help="Differences to show.")
@detach_option
@json_option
def verify(
    directory: Path | None,
    server: str,
    key_every: int,
    limit: int,
    detach: bool,  # noqa: FBT001 - click passes by name
    as_json: bool,  # noqa: FBT001 - click passes by name
) -> None:
    """Compare log, files and RocksDB below the end of now. Exits with 1 if they differ."""
    with _target(directory, server, quiet=as_json) as (where, watch):
        answer = where.verify(key_every)
        if detach:
            _show_status(answer.status, as_json=as_json)
            return
        found = where.wait(answer.job_id, watch)
        _check_verification(found, answer.job_id, directory)
        differences = where.differences(limit)
    result = plain(found.verified)
    if any(plain(each)["side"] in _SIDES for each in differences):
        found.next_command = _made_again(differences, directory)
    if as_json:
        print_json(
            {
                **plain(found),
                "verified": result,
                "differences": [plain(each) for each in differences],
            }
        )
    else:
        notes.print(
            f"compared {result['compared_units']:,} units below physical offset "
            f"{result['cut_offset']:,}: {result['difference_count']:,} differences",
            highlight=False,
        )
        _show_differences(differences)
        if differences and len(differences) < result["difference_count"]:
            notes.print(f"{result['difference_count'] - len(differences):,} more", highlight=False)
        _say_next(found)
    if result["difference_count"]:
        raise SystemExit(EXIT_REFUSED)


@migrate.command()
@directory_argument
@server_option
@json_option
def cutover(directory: Path | None, server: str, as_json: bool) -> None:  # noqa: FBT001
    """Read from RocksDB from now on. Files are still written: rollback stays possible."""
    with _target(directory, server, quiet=as_json) as (where, watch):
        _end(where, where.cutover(), watch, detach=False, as_json=as_json)


@migrate.command()
@directory_argument
@server_option
@detach_option
@json_option
def rollback(directory: Path | None, server: str, detach: bool, as_json: bool) -> None:  # noqa: FBT001
    """Go one state back; files are made again from the log where they are gone."""
    with _target(directory, server, quiet=as_json) as (where, watch):
        before = where.status()
        answer = where.rollback()
        _end(where, answer, watch, detach=detach, as_json=as_json, since=before)


@migrate.command()
@directory_argument
@server_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def finish(directory: Path | None, server: str, yes: bool, as_json: bool) -> None:  # noqa: FBT001
    """Remove what is not read any more: the files, as far as nothing is routed to them."""
    with _target(directory, server, quiet=as_json) as (where, watch):
        if not yes:
            found = where.status()
            _check_can_finish(found)
            watch.rest()
            if as_json or not sys.stdin.isatty():
                raise BadRequestError("it removes files, and nobody can be asked", "give --yes")
            click.confirm(f"Remove {_what_goes(found)}?", abort=True, err=True)
        _end(where, where.finish(), watch, detach=False, as_json=as_json)


@migrate.command()
@directory_argument
@server_option
@route_option
@default_option
@click.option("--clear", is_flag=True, help="Set a policy without rules.")
@detach_option
@json_option
def routing(
    directory: Path | None,
    server: str,
    routes: tuple[str, ...],
    default_route: str | None,
    clear: bool,  # noqa: FBT001 - click passes by name
    detach: bool,  # noqa: FBT001 - click passes by name
    as_json: bool,  # noqa: FBT001 - click passes by name
) -> None:
    """Show where topics go, or, with --route, --default or --clear, set all of it anew."""
    policy = _policy(routes, default_route)
    if policy is None and clear:
        policy = RoutingPolicy()
    with _target(directory, server, quiet=as_json) as (where, watch):
        if policy is None:
            found = where.status().routing
        else:
            answer = where.set_routing(policy)
            _end(where, answer, watch, detach=detach, as_json=as_json)
            return
    if as_json:
        print_json(plain(found))
        return
    rows = [(rule["pattern"], rule["route"]) for rule in plain(found)["rules"]]
    print_table("routing", ("pattern", "route"), [*rows, ("all others", _default_of(found))])


@migrate.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--rocksdb",
    "home",
    flag_value=Home.ROCKSDB.value,
    help="For a broker with storeType=defaultRocksDB: our RocksDB becomes its own.",
)
@click.option(
    "--files",
    "home",
    flag_value=Home.FILES.value,
    help="For one with storeType=default: an older RocksDB of its own is removed.",
)
@json_option
def release(directory: Path, home: str | None, as_json: bool) -> None:  # noqa: FBT001
    """Give the stopped store in DIRECTORY back to RocketMQ.

    In state FILES, or with --rocksdb in VERIFIED or ROCKSDB. Topics and committed offsets are
    written to its config/; what is ours is removed.
    """
    with _target(directory, "", quiet=as_json) as (where, _watch):
        done = where.release(None if home is None else Home(home))
    if as_json:
        print_json({"done": done})
        return
    for line in done:
        notes.print(line, highlight=False, soft_wrap=True)
    notes.print("[bold]next:[/]  start the RocketMQ broker on it", highlight=False)


@migrate.command()
@server_option
@click.argument("job_id", required=False, default="")
@json_option
def cancel(server: str, job_id: str, as_json: bool) -> None:  # noqa: FBT001
    """End the job JOB_ID of a running store, or all. `resume` goes on with a backfill."""
    directory = Path(job_id) if job_id and Path(job_id).is_dir() else None
    with _target(directory, server, quiet=as_json) as (where, watch):
        _end(where, where.cancel(job_id), watch, detach=True, as_json=as_json)


@migrate.command()
@directory_argument
@server_option
@click.option(
    "--rebuild",
    type=click.Choice([side.value for side in SideName]),
    help="Set this side of a stopped store aside, and make it again from the log.",
)
@detach_option
@json_option
def resume(
    directory: Path | None,
    server: str,
    rebuild: str | None,
    detach: bool,  # noqa: FBT001 - click passes by name
    as_json: bool,  # noqa: FBT001 - click passes by name
) -> None:
    """Go on after a stop, from where the side was that stopped."""
    side = None if rebuild is None else SideName(rebuild)
    with _target(directory, server, quiet=as_json) as (where, watch):
        _end(where, where.resume(side), watch, detach=detach, as_json=as_json)


# --- parts -------------------------------------------------------------------------------------

_LEFT_ALONE = "leave it where it is"


class _Watcher:
    """A progress bar that is there from the first thing that takes time on."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._progress: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, step: str, share: float, remark: str) -> None:
        if self._quiet:
            return
        if self._progress is None:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f} %"),
                TimeElapsedColumn(),
                TextColumn("{task.fields[remark]}"),
            )
            self._progress = Progress(
                *columns, console=notes, transient=True, disable=not notes.is_terminal
            )
            self._progress.start()
        if step not in self._tasks:
            self._tasks[step] = self._progress.add_task(step, total=1.0, remark=remark)
        self._progress.update(self._tasks[step], completed=share, remark=remark)

    def rest(self) -> None:
        """Off the screen, until there is something to show again. Repeatable."""
        if self._progress is not None:
            self._progress.stop()
        self._progress = None
        self._tasks.clear()


@contextmanager
def _target(
    directory: Path | None, server: str, *, quiet: bool
) -> Iterator[tuple[Target, _Watcher]]:
    watch = _Watcher(quiet=quiet)
    opened = remote_target(server) if directory is None else local_target(directory, watch)
    try:
        with opened as where:
            yield where, watch
    finally:
        watch.rest()


def _end(
    where: Target,
    answer: pb.MigrationStepResponse,
    watch: Watch,
    *,
    detach: bool,
    as_json: bool,
    since: pb.MigrationStatus | None = None,
) -> None:
    """Wait for the step's job, unless that is not wanted, and show what it led to.

    With the status from before, what the history has since then is shown as well.
    """
    found = answer.status
    if answer.job_id and not detach:
        found = where.wait(answer.job_id, watch)
        _check_job(found, answer.job_id)
    done = list(where.notes)
    if since is not None:
        known = {(each.time_ms, each.event) for each in since.history}
        done += [each.event for each in found.history if (each.time_ms, each.event) not in known]
    _show_status(found, as_json=as_json, done=done)


def _check_job(status: pb.MigrationStatus, job_id: str) -> None:
    job = job_of(status, job_id)
    if job is not None and job.state in (pb.JOB_STATE_FAILED, pb.JOB_STATE_CANCELLED):
        raise CommandError(f"{job.kind}: {job.error}", status.next_command)


def _check_can_finish(status: pb.MigrationStatus) -> None:
    """Before anybody is asked: the step itself looks again."""
    phase = str(plain(status)["phase"]).upper()
    why = ""
    if phase not in ("ROCKSDB", "FINISHED"):
        why = "reads come from files still"
    elif plain(status)["pending_phase"] is not None:
        why = "a change of routes is under way"
    elif "--rebuild rocksdb" in status.next_command:
        why = "RocksDB differs from the log"
    if why:
        raise CommandError(
            f"finish is not possible in state {phase}: {why}",
            status.next_command,
            code="ILLEGAL_STEP",
        )


def _what_goes(status: pb.MigrationStatus) -> str:
    if _on_files(status):
        return f"from the files all but what is routed to them ({_on_files(status)})"
    return "all queue and index files: consumequeue/ and index/"


def _check_verification(status: pb.MigrationStatus, job_id: str, directory: Path | None) -> None:
    """A side that cannot be read is made again, which takes a stopped store, and verified anew."""
    job = job_of(status, job_id)
    if job is not None and job.state == pb.JOB_STATE_FAILED:
        for side in SideName:
            if job.error.startswith(f"the {side.value} side cannot be read"):
                where = "DIRECTORY" if directory is None else directory
                advice = f"kvcq migrate resume {where} --rebuild {side.value}, then verify again"
                if directory is None:
                    advice = f"stop the service, then: {advice}"
                raise CommandError(f"{job.kind}: {job.error}", advice)
    _check_job(status, job_id)


def _policy(routes: tuple[str, ...], default_route: str | None) -> RoutingPolicy | None:
    if not routes and default_route is None:
        return None
    try:
        return RoutingPolicy(parse_rules(routes), Route(default_route or Route.BOTH.value))
    except InvalidArgumentError as error:
        raise click.UsageError(str(error)) from error


def _layout(
    directory: Path | None, units: int | None, slots: int | None, entries: int | None
) -> FileLayout | None:
    """What is not given is taken from the files. A running store knows its sizes."""
    return None if directory is None else layout_given(directory, units, slots, entries)


def _sizes(units: int | None, slots: int | None, entries: int | None) -> str:
    """The options of sizes that were given, to be typed again."""
    given = (("units-per-file", units), ("index-slots", slots), ("index-entries", entries))
    return "".join(f" --{name} {value}" for name, value in given if value is not None)


def _default_of(policy: pb.RoutingPolicy) -> str:
    return str(plain(policy)["default_route"])


def _say_next(status: pb.MigrationStatus) -> None:
    notes.print(f"[bold]next:[/]  {escape(status.next_command)}", highlight=False, soft_wrap=True)


def _show_status(
    status: pb.MigrationStatus, *, as_json: bool, done: Sequence[str] | None = None
) -> None:
    """`done`: what the step did, line by line, for a command that was a step."""
    document = plain(status)
    if as_json:
        print_json(document if done is None else {**document, "done": list(done)})
        return
    lines = list(done or ())
    for line in lines[:_SHOWN]:
        notes.print(f"[bold]done:[/]  {escape(line)}", highlight=False, soft_wrap=True)
    if len(lines) > _SHOWN:
        notes.print(f"       and {len(lines) - _SHOWN:,} more: --json has all", highlight=False)
    phase = str(document["phase"]).upper()
    print_table(
        "", ("state", "names", "reads come from", "written to"), _served(status.routing, phase)
    )
    if status.stopped:
        notes.print(
            f"[bold red]stopped:[/] {escape(status.stopped)}", highlight=False, soft_wrap=True
        )
    if document["pending_phase"] is not None:
        notes.print(f"on the way to {str(document['pending_phase']).upper()}", highlight=False)
    print_table(
        "sides",
        ("side", "dispatched up to", "bytes behind", "fed live", "failure"),
        [
            (s["name"], s["dispatched_offset"], s["behind_bytes"], s["joined"], s["failure"])
            for s in document["sides"]
        ],
    )
    if document["jobs"]:
        print_table(
            "jobs",
            ("job", "kind", "step", "state", "percent", "rows", "rows/s", "s left", "differences"),
            [
                (
                    j["job_id"],
                    j["kind"],
                    j["step"],
                    j["state"],
                    round(j["percent"], 1),
                    j["rows"],
                    round(j["rows_per_s"]),
                    "-" if j["remaining_s"] is None else round(j["remaining_s"]),
                    j["differences"],
                )
                for j in document["jobs"]
            ],
        )
    if status.verify_broken_off:
        notes.print(
            f"the last verification broke off: {escape(status.verify_broken_off)}. A verification "
            "does not go on where it was; it begins anew",
            highlight=False,
            soft_wrap=True,
        )
    if status.HasField("verified"):
        result = document["verified"]
        notes.print(
            f"last verification: {result['compared_units']:,} units, "
            f"{result['difference_count']:,} differences, {time_text(result['finished_ms'])}",
            highlight=False,
        )
    _say_next(status)


def _served(routing: pb.RoutingPolicy, phase: str) -> list[tuple[str, str, str, str]]:
    """A row for each rule, and one for all other names: what happens to them in this state."""
    policy = plain(routing)
    rules = [(rule["pattern"], rule["route"]) for rule in policy["rules"]]
    others = "all others" if rules else "all"
    rows: list[tuple[str, str, str, str]] = []
    for pattern, route in [*rules, (others, policy["default_route"])]:
        reads, written = "files", "files"
        if phase in ("DOUBLE_WRITE", "VERIFIED"):
            written = "files" if route == "files" else "files, RocksDB"
        elif phase == "ROCKSDB":
            reads = "files" if route == "files" else "RocksDB"
            written = {"files": "files", "rocksdb": "RocksDB"}.get(route, "files, RocksDB")
        elif phase == "FINISHED":
            reads = "files" if route == "files" else "RocksDB"
            written = reads
        rows.append((phase if not rows else "", pattern, reads, written))
    return rows


def _on_files(status: pb.MigrationStatus) -> str:
    """The names that stay on files after a finish; empty when none do."""
    policy = plain(status.routing)
    names = [rule["pattern"] for rule in policy["rules"] if rule["route"] == "files"]
    if policy["default_route"] == "files":
        names.append("all others")
    return ", ".join(names)


def _show_differences(differences: list[pb.Difference]) -> None:
    if differences:
        print_table(
            "differences",
            ("topic", "queue", "offset", "field", "side", "in the log", "in the side"),
            [tuple(plain(each).values()) for each in differences],
        )


def _made_again(differences: Sequence[pb.Difference], directory: Path | None) -> str:
    """What makes the sides that differ from the log again, and compares once more."""
    where = "DIRECTORY" if directory is None else str(directory)
    sides = sorted({str(plain(each)["side"]) for each in differences} & _SIDES)
    steps = [f"kvcq migrate resume {where} --rebuild {side}" for side in sides]
    stopped = " (with the service stopped)" if directory is None else ""
    again = "kvcq migrate verify" + ("" if directory is None else f" {where}")
    return f"{', '.join(steps)}{stopped}, then {again}"


def _show_plan(found: pb.MigrationPlan, limit: int) -> None:
    faults = [each for each in found.findings if each.remedy != _LEFT_ALONE]
    passed_over = [each for each in found.findings if each.remedy == _LEFT_ALONE]
    count = f"{'about ' if found.messages_are_estimated else ''}{found.messages:,}"
    print_table(
        "",
        ("what", "value"),
        [
            ("store", "RocketMQ's" if found.kind == "rocketmq" else f"ours, {found.phase}"),
            ("segments", f"{found.segments:,}"),
            ("log", f"{found.log_bytes:,} bytes"),
            ("to replay", f"{found.bytes_to_replay:,} bytes"),
            ("messages", count),
            ("topics, queues", f"{found.topics:,}, {found.queues:,}"),
            (
                "measured here",
                f"{found.units_per_s:,.0f} units/s, {found.bytes_per_unit:.1f} bytes each",
            ),
            ("disk needed", f"{found.disk_needed_bytes:,} of {found.disk_free_bytes:,} free bytes"),
            ("time expected", f"{found.expected_s:,.1f} s"),
            *(
                [("queues in RocketMQ's RocksDB alone", f"{found.queues_in_rocksdb:,}")]
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
            ("where", "kept as", "holds", "rows", "offsets", "what becomes of it"),
            [(t.path, t.form, t.holds, t.rows, t.offsets, t.detail) for t in found.config],
        )
    if found.dead[:limit]:
        print_table(
            "records of topics and light queues that RocketMQ deleted: they are not taken over",
            ("name", "dead records", "generations", "lives from"),
            [
                (
                    each.name,
                    f"{each.records:,}",
                    f"{each.generations:,}",
                    f"{each.live_from:,}" if each.HasField("live_from") else "deleted",
                )
                for each in found.dead[:limit]
            ],
        )
    for title, each in (("faults, and what would be done", faults), ("left alone", passed_over)):
        if each[:limit]:
            print_table(
                title,
                ("file", "position", "finding", "detail", "remedy"),
                [(f.path, f.position, f.fault, f.detail, f.remedy) for f in each[:limit]],
            )
            if len(each) > limit:
                notes.print(f"{len(each) - limit:,} more: --limit {len(each)}", highlight=False)
    for reason in found.blocking:
        notes.print(f"[bold red]in the way:[/] {escape(reason)}", highlight=False, soft_wrap=True)
    notes.print(f"[bold]next:[/]  {escape(found.next_command)}", highlight=False, soft_wrap=True)


migrate.add_command(ingest)
