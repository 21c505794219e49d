"""kvcq check on directories that real servers left behind."""

from __future__ import annotations

import json
import shutil
import signal
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from kvcq.engine.rocks import damage_mark
from kvcq.inspect.findings import Finding, Kind
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.pb.v1 import kvcq_pb2_grpc
from server.cli.on_disk.check import ProgressLines, remedies
from tests.support.command_line import kvcq
from tests.support.server_process import ServerProcess
from tests.support.stores import open_small

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.crash]


def _fill(target: str) -> None:
    with grpc.insecure_channel(target) as channel:
        stub = kvcq_pb2_grpc.MessageServiceStub(channel)
        for number in range(20):
            stub.PutBatch(
                pb.PutBatchRequest(
                    messages=[
                        pb.Message(
                            topic=f"t{number % 3}",
                            body=b"%d" % each,
                            keys=[f"k{each}"],
                            light_queues=["%LMQ%a"] if each % 2 else [],
                        )
                        for each in range(50)
                    ]
                )
            )


def _served(directory: Path, end: signal.Signals) -> None:
    with ServerProcess(directory) as server:
        server.wait_for("ready")
        _fill(server.target)
        server.send(end)
        server.wait()


def _check(directory: Path) -> tuple[int, dict[str, Any]]:
    result = kvcq("check", str(directory), "--json")
    return result.exit_code, json.loads(result.stdout)


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_wrong_however_the_server_ended(tmp_path: Path, end: signal.Signals) -> None:
    for _ in range(2):
        _served(tmp_path, end)
        assert _check(tmp_path)[1]["first"] == []
        assert _check(tmp_path)[0] == 0
    result = kvcq("check", str(tmp_path))
    # Three more made the topics.
    assert "nothing is wrong. Checked: 2,003 records in " in result.stdout
    assert result.stderr == ""
    assert _check(tmp_path)[1]["checked"]["records"] == 2003


def test_a_flipped_byte_in_the_log_is_found(tmp_path: Path) -> None:
    _served(tmp_path, signal.SIGTERM)
    segment = min((tmp_path / "commitlog").iterdir())
    with segment.open("r+b") as file:
        at = segment.read_bytes().index(b"k25")  # a key, in the properties of a message
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))
    exit_code, report = _check(tmp_path)
    assert exit_code == 1
    assert report["faults"] >= 1
    result = kvcq("check", str(tmp_path))
    assert result.exit_code == 1
    assert "1 fault in" in result.stdout
    assert "--queues --skip-damaged" in result.stdout
    assert "from a replica or a backup" in result.stdout
    assert "rebuilds queues, bounds and index rows" not in result.stdout
    assert "records follow" in result.stdout
    assert result.stderr == ""


def test_advice_names_what_helps(tmp_path: Path) -> None:
    def told(*kinds: Kind) -> str:
        advice = remedies(tmp_path, [Finding(kind, "place", "a", "b") for kind in kinds])
        return " ".join(f"{hint} {command}" for hint, command in advice)

    assert told(Kind.MISSING_UNIT).endswith(f"kvcq repair {tmp_path} --queues")
    assert told(Kind.MISSING_UNIT, Kind.DAMAGED_RECORD).endswith("--queues --skip-damaged")
    assert "repair" not in told(Kind.SHORT_LOG, Kind.FALLING_TIME, Kind.IDENTITY)
    assert f"mv {tmp_path / 'kvcq'}" in told(Kind.STATE)
    assert "--queues" not in told(Kind.STATE)
    assert "next start" in told(Kind.CHECKPOINT_FILE)
    assert "next start" in told(Kind.NOTE)
    assert f"rm -r {tmp_path / 'place'}" in told(Kind.SNAPSHOT)
    assert "rm -r" not in told(Kind.SNAPSHOT, Kind.STATE)
    assert told(Kind.OLD_DATABASE).startswith("start the server")
    assert told(Kind.DATABASE).endswith("--queues")
    damage_mark(tmp_path / "kvcq").touch()  # by a reader
    assert told(Kind.DATABASE).startswith("start the server")


def test_a_start_is_advised_where_it_heals(tmp_path: Path) -> None:
    root = tmp_path / "store"
    open_small(root).close()
    (root / "kvcq" / "CURRENT").write_text("x")
    result = kvcq("check", str(root))
    assert result.exit_code == 1
    assert "hint: start the server" in result.stdout
    assert "next:" not in result.stdout
    open_small(root).close()
    assert _check(root)[0] == 0


def test_without_a_terminal_a_line_tells_every_few_seconds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    times = iter([0.0, 1.0, 5.0, 5.0, 6.0, 11.0, 11.0])
    lines = ProgressLines(lambda: next(times))
    for share in (0.1, 0.2, 0.3, 0.4):
        lines("records", share)
    assert capsys.readouterr().err.splitlines() == ["records: 20%", "records: 40%"]


def test_queues_of_another_log_are_found(tmp_path: Path) -> None:
    _served(tmp_path / "one", signal.SIGTERM)
    _served(tmp_path / "two", signal.SIGTERM)
    _served(tmp_path / "two", signal.SIGTERM)
    shutil.rmtree(tmp_path / "one" / "kvcq")
    shutil.copytree(tmp_path / "two" / "kvcq", tmp_path / "one" / "kvcq")
    exit_code, report = _check(tmp_path / "one")
    assert exit_code == 1
    assert {finding["place"] for finding in report["first"]}


def test_a_running_store_is_refused(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        server.wait_for("ready")
        result = kvcq("check", str(tmp_path))
    assert result.exit_code == 1
    assert "stop its server" in result.stderr


def test_a_directory_that_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear reader")
    result = kvcq("check", str(tmp_path))
    assert result.exit_code == 1
    assert "kvcq serve --data" in result.stderr
