"""What the command line advises: `next:` is a command line that would be taken, whatever else is
to be said is a sentence of its own."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
import pytest

from kvcq.inspect.findings import Finding, Kind
from kvcq_client import DeadlineError, InvalidArgumentError, KvcqError, UnavailableError
from migration.errors import VerificationError
from migration.next_step import NO_MIGRATION, NextStep
from migration.repair.queues import rebuild_side_step
from migration.state.keeper import next_step
from migration.state.phase import Phase
from migration.state.state import BrokenOff, MigrationState, VerifyResult
from migration.state.state import write_state as write_migration
from server.cli.main import main
from server.cli.on_disk.check import remedies
from server.cli.online.connection import command_error
from server.wire.status import STATUS_BY_ERROR
from tests.support.command_line import kvcq
from tests.support.migrating import config, make_on_files, messages, open_store
from tests.support.serving import serving

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

SERVER = "10.0.0.1:9000"


def check_command(text: str) -> None:
    """A shell would run it, and kvcq would take all its words. It is not run."""
    words = shlex.split(text)
    if words[0] == "mv":  # a directory out of the way
        assert len(words) == 3
        return
    if words[:2] == ["rm", "-r"]:
        assert len(words) > 2
        return
    assert words.pop(0) == "kvcq", text
    command: click.Command = main
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words.pop(0))
        assert found is not None, text
        command = found
    command.make_context("kvcq", words)


def check_hint(text: str | None) -> None:
    assert text is None or not text.startswith("kvcq "), text


def run(*arguments: str | Path) -> Result:
    return kvcq(*arguments)


def document(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.stdout or result.stderr.splitlines()[-1])
    check_keys(found)
    advice = found.get("error", found)
    if advice["nextCommand"] is not None:
        check_command(advice["nextCommand"])
    check_hint(advice["hint"])
    return found


def check_keys(value: object) -> None:
    if isinstance(value, dict):
        for name, inner in value.items():
            assert re.fullmatch(r"[a-z]+([A-Z][a-z]*)*", name), name
            check_keys(inner)
    elif isinstance(value, list):
        for inner in value:
            check_keys(inner)


def states() -> list[MigrationState]:
    found = []
    for phase in Phase:
        plain = MigrationState(phase)
        found += [
            plain,
            replace(plain, stopped="disk full"),
            replace(plain, pending=Phase.ROCKSDB),
            *(
                replace(plain, verified=VerifyResult(9, 9, 1, 1, sides))
                for sides in ("files", "rocksdb", "files rocksdb")
            ),
            replace(plain, broken_off=BrokenOff("queue 3", "files")),
        ]
    return found


def test_the_next_step_of_each_state_is_a_command_on_a_stopped_store_or_a_sentence(
    tmp_path: Path,
) -> None:
    root = tmp_path / "a store"
    root.mkdir()
    for step in [*map(next_step, states()), NO_MIGRATION, rebuild_side_step("rocksdb")]:
        for place in (root, None):
            command, hint = step.command(place), step.sentence(place)
            assert command or hint
            check_hint(hint)
            if command is not None:
                check_command(command)
                assert (place is None) == (str(root) not in command)


def test_a_running_store_is_not_told_to_run_what_takes_a_stopped_one() -> None:
    step = NextStep("resume", ("--rebuild", "files"), hint="verify again", stopped_only=True)
    assert step.command(None) is None
    said = step.sentence(None)
    assert said is not None
    assert "stop the service" in said
    assert said.endswith("verify again")


@pytest.mark.parametrize("topic", ["orders", "%LMQ%$p$x", "-dash", "a|b"])
def test_what_is_advised_on_errors_of_the_server_is_a_command_on_that_server(topic: str) -> None:
    values = {
        "topic": topic,
        "queueId": "3",
        "queueOffset": "7",
        "offset": "7",
        "minOffset": "2",
        "maxOffset": "9",
    }
    reasons = {row.reason for row in STATUS_BY_ERROR.values()} | {"INTERNAL", ""}
    for kind in (KvcqError, InvalidArgumentError, UnavailableError, DeadlineError):
        for reason in sorted(reasons):
            error = command_error(kind("no", reason=reason, metadata=values), SERVER)
            check_hint(error.hint)
            if error.command is not None:
                check_command(error.command)
                assert f"--server {SERVER}" in error.command


def test_remedies_of_a_check_are_commands_or_sentences(tmp_path: Path) -> None:
    kinds = [[kind] for kind in Kind] + [[Kind.DAMAGED_RECORD, Kind.MISSING_UNIT]]
    for with_migration in (False, True):
        if with_migration:
            write_migration(tmp_path, MigrationState(Phase.ROCKSDB))
        for chosen in kinds:
            findings = [Finding(kind, "place", "a", "b") for kind in chosen]
            for hint, command in remedies(tmp_path, findings):
                check_hint(hint)
                if command is not None:
                    check_command(command)


def test_a_store_without_a_migration_has_nothing_to_do(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(config(root)) as store:
        store.put(messages(0, 3))
    for step in ("status", "plan"):
        told = run("migrate", step, root)
        assert told.exit_code == 0
        assert "this store has no migration: there is nothing to do" in told.stderr
        assert "rollback" not in told.output
        assert "FINISHED" not in told.output
        assert document(run("migrate", step, root, "--json"))["phase"] is None
    for step in ("start", "verify", "cutover", "finish", "resume"):
        error = document(run("migrate", step, root, "--json"))["error"]
        assert error["code"] == "ILLEGAL_STEP"
        assert error["nextCommand"] is None
        assert error["reason"] == f"{step} is not possible: its queues are only in RocksDB"
    assert not (root / "migration.json").exists()


def test_a_plain_store_gets_files_only_when_that_is_asked_for(tmp_path: Path) -> None:
    """`rollback` wrote queue files for all topics and left it in double write, unasked."""
    root = tmp_path / "store"
    with open_store(config(root)) as store:
        store.put(messages(0, 3))
    before = {each.name for each in root.iterdir()}
    error = document(run("migrate", "rollback", root, "--json"))["error"]
    assert error["code"] == "ILLEGAL_STEP"
    assert error["nextCommand"] == f"kvcq migrate rollback {root} --to-files"
    assert {each.name for each in root.iterdir()} == before
    released = document(run("migrate", "release", root, "--rocksdb", "--json"))["error"]
    assert released["nextCommand"] == error["nextCommand"]
    found = document(run("migrate", "rollback", root, "--to-files", "--json"))
    assert found["phase"] == "ROCKSDB"
    assert document(run("migrate", "rollback", root, "--json"))["phase"] == "DOUBLE_WRITE"


def test_a_plan_of_three_messages_claims_no_rate(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(config(root)) as store:
        store.put(messages(0, 3))
    told = run("migrate", "plan", root)
    assert "too few messages to measure" in told.stdout
    assert "units/s" not in told.stdout
    found = document(run("migrate", "plan", root, "--json"))
    assert (found["unitsPerS"], found["bytesPerUnit"], found["expectedS"]) == (None, None, None)


@pytest.mark.parametrize("step", ["plan", "start"])
@pytest.mark.parametrize("inside", ["", "commitlog"])
def test_a_directory_that_is_no_store_is_told_which_one_a_broker_has(
    tmp_path: Path, step: str, inside: str
) -> None:
    make_on_files(tmp_path / "store")
    found = run("migrate", step, tmp_path / "store" / inside if inside else tmp_path)
    assert found.exit_code == 1
    assert "storePathRootDir, with commitlog/ in it" in found.stderr
    assert "foreign" not in found.stderr


def test_a_side_that_did_not_fail_has_no_failure(tmp_path: Path) -> None:
    make_on_files(tmp_path)
    assert "None" not in run("migrate", "status", tmp_path).stdout


def test_each_step_on_a_stopped_store_names_a_command_that_is_taken(tmp_path: Path) -> None:
    root = tmp_path / "a store"
    make_on_files(root)
    assert document(run("migrate", "plan", root, "--json"))["phase"] == "FILES"
    for step, phase in (("start", "DOUBLE_WRITE"), ("verify", "VERIFIED"), ("cutover", "ROCKSDB")):
        refused = document(run("migrate", "release", root, "--json")) if step != "start" else None
        assert refused is None or refused["error"]["nextCommand"].startswith("kvcq migrate roll")
        assert document(run("migrate", step, root, "--json"))["phase"] == phase
    assert phase in run("migrate", "status", root).stdout
    document(run("migrate", "start", root, "--json"))
    document(run("migrate", "resume", root, "--rebuild", "files", "--json"))
    finish = document(run("migrate", "finish", root, "--json"))
    assert finish["error"]["nextCommand"].endswith("--yes")


@pytest.mark.integration
@pytest.mark.slow
async def test_a_running_store_names_commands_that_reach_it_and_no_path_of_its_own(
    tmp_path: Path,
) -> None:
    from asyncio import to_thread

    async with serving(tmp_path / "store") as served:
        for arguments in (
            ("migrate", "status"),
            ("migrate", "plan"),
            ("migrate", "rollback"),
            ("migrate", "finish"),
            ("migrate", "cutover"),
            ("job", "cancel", "7"),
            ("pull", "nothing"),
            ("topic", "delete", "nothing", "--yes"),
            ("topic", "delete", "nothing"),
            ("group", "describe", "nothing"),
        ):
            command = [*arguments, "--server", served.target, "--json"]
            told = await to_thread(kvcq, *command)
            found = document(told)
            advice = found.get("error", found)
            following = advice["nextCommand"]
            assert str(tmp_path) not in f"{following} {advice['hint']} {advice.get('reason')}"
            assert following is None or f"--server {served.target}" in following
    for gone in (("pull", "t"), ("migrate", "status")):
        document(run(*gone, "--server", "127.0.0.1:1", "--json"))


def test_the_side_that_could_not_be_read_is_a_value() -> None:
    error = VerificationError("files", "rocksdb side cannot be read")
    state = MigrationState(Phase.VERIFIED, broken_off=BrokenOff(str(error), error.side))
    assert state.blamed == ["files"]
    assert state.rebuilt("files")["broken_off"] is None
    assert state.rebuilt("rocksdb")["broken_off"] == state.broken_off
