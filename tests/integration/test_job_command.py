"""kvcq job against a real server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click
import pytest

from kvcq_client import Client, Job, NotPossibleError
from kvcq_client.pb.v1 import jobs_pb2 as pb
from kvcq_client.wire import from_wire
from server.cli.main import main
from server.cli.online.connection import command_error
from server.cli.online.jobs import _show
from server.cli.terminal import CommandError
from tests.support.command_line import answer_of, kvcq

if TYPE_CHECKING:
    from click.testing import Result

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module", autouse=True)
def _orders(target: str) -> None:
    with Client(target) as client:
        client.create_topic("orders", 2)


def run(target: str, *arguments: str) -> Result:
    return kvcq("job", *arguments, server=target)


def answer(target: str, *arguments: str) -> Any:  # noqa: ANN401 - any JSON
    return answer_of("job", *arguments, server=target)


def test_a_compaction_is_waited_for_and_listed(target: str) -> None:
    done = answer(target, "start", "compact", "--topic", "orders", "--wait")
    assert (done["kind"], done["status"], done["percent"]) == ("compact", "done", 100.0)
    assert done["arguments"] == {"topic": "orders"}
    assert set(done["numbers"]) == {"bytesBefore", "bytesAfter"}
    assert done["findings"] == []
    assert done["jobId"] in [each["jobId"] for each in answer(target, "list")]
    assert answer(target, "show", done["jobId"]) == done
    shown = run(target, "show", done["jobId"])
    assert "the database files had" in shown.stdout
    assert done["jobId"] in run(target, "list", "--kind", "compact").stdout


def test_what_is_started_says_how_to_watch_it(target: str) -> None:
    started = run(target, "start", "compact", "--family", "index")
    assert started.exit_code == 0, started.output
    job_id = started.stdout.strip()  # alone, for scripts
    assert answer(target, "show", job_id)["kind"] == "compact"
    assert f"kvcq job watch {job_id}" in started.stderr
    watched = run(target, "watch", job_id)
    assert (watched.exit_code, "done" in watched.stdout) == (0, True)
    ended = run(target, "cancel", job_id)
    assert (ended.exit_code, "has already ended: done" in ended.stderr) == (0, True)
    assert answer(target, "cancel", job_id)["status"] == "done"


@pytest.mark.parametrize(
    ("arguments", "numbers"),
    [
        (["scrub", "--bytes-per-s", "1000000"], {"damagedRecords": 0, "wrongUnits": 0}),
        (["scrub", "--log-only"], {"units": 0}),
        (["rebuild", "orders", "--queue", "1"], {"damagedRecords": 0}),
        (["rebuild", "orders"], {"damagedRecords": 0}),
        (["expire"], {"segmentsDropped": 0, "bytesFreed": 0}),
        (["keep_latest", "orders"], {"queues": 2, "hiddenMessages": 0}),
    ],
)
def test_each_kind_is_started_and_tells_its_numbers(
    target: str, arguments: list[str], numbers: dict[str, int]
) -> None:
    done = answer(target, "start", *arguments, "--wait")
    assert (done["kind"], done["status"]) == (arguments[0].replace("-", "_"), "done")
    assert numbers.items() <= done["numbers"].items()


def _job(**fields: Any) -> Job:  # noqa: ANN401 - of the message
    return from_wire(Job, pb.Job(job_id="a1", **fields))


def test_findings_are_shown_with_what_helps(capsys: pytest.CaptureFixture[str]) -> None:
    finding = pb.JobFinding(fault="missing unit", place="consume queue", topic="orders", count=1)
    found = _job(kind="scrub", status=pb.JOB_STATUS_DONE, findings=[finding])
    with pytest.raises(click.exceptions.Exit) as ended, click.Context(main):
        _show(found, "127.0.0.1:8081", as_json=False)
    assert ended.value.exit_code == 1
    shown = capsys.readouterr()
    assert "missing unit" in shown.out
    assert "kvcq job start rebuild orders" in shown.err


def test_a_job_that_failed_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    failed = _job(kind="scrub", status=pb.JOB_STATUS_FAILED, error="Input/output")
    with pytest.raises(CommandError, match="Input/output"), click.Context(main):
        _show(failed, "127.0.0.1:8081", as_json=False)
    with pytest.raises(click.exceptions.Exit) as ended, click.Context(main):
        _show(failed, "127.0.0.1:8081", as_json=True)
    assert ended.value.exit_code == 1


@pytest.mark.parametrize("as_json", [False, True])
def test_a_job_that_was_cancelled_was_not_done(as_json: bool) -> None:
    """As by a server that was stopped: a script must not go on as if there were a backup."""
    cancelled = _job(kind="backup", status=pb.JOB_STATUS_CANCELLED, error="the server ends")
    with pytest.raises((CommandError, click.exceptions.Exit)) as ended, click.Context(main):
        _show(cancelled, "127.0.0.1:8081", as_json=as_json)
    assert isinstance(ended.value, CommandError | click.exceptions.Exit)
    assert ended.value.exit_code == 1
    assert as_json or "was cancelled: the server ends" in str(ended.value)


def test_faults_are_told_when_the_findings_are_forgotten() -> None:
    numbers = {"damaged_records": 3, "wrong_units": 0}
    found = _job(kind="scrub", status=pb.JOB_STATUS_DONE, numbers=numbers)
    with pytest.raises(click.exceptions.Exit) as ended, click.Context(main):
        _show(found, "127.0.0.1:8081", as_json=True)
    assert ended.value.exit_code == 1


def test_a_second_one_names_the_command_that_watches_the_first() -> None:
    running = NotPossibleError("a job runs", "JOB_RUNNING", {"kind": "compact", "jobId": "a1"})
    assert command_error(running, "127.0.0.1:8081").command == "kvcq job watch a1"


@pytest.mark.parametrize(
    ("arguments", "code", "field"),
    [
        (["start", "compact", "--family", "units"], 2, "family"),
        (["start", "compact", "--topic", "none"], 1, None),
        (["list", "--kind", "none"], 2, "kind"),
        (["show", "none"], 1, None),
        (["watch", "none"], 1, None),
        (["cancel", "none"], 1, None),
    ],
)
def test_what_is_not_there_is_refused(
    target: str, arguments: list[str], code: int, field: str | None
) -> None:
    refused = run(target, *arguments, "--json")
    assert refused.exit_code == code, refused.output
    assert json.loads(refused.stderr)["error"]["field"] == field
