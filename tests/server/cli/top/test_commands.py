"""kvcq top against a real server: once, as JSON, and on a terminal until Ctrl-C."""

from __future__ import annotations

import json
import os
import pty
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from kvcq_client import Client, Message, Start
from tests.support.child_process import child_process
from tests.support.command_line import kvcq
from tests.support.server_process import ROOT, TIMEOUT_S, ServerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from click.testing import Result

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("store")) as server:
        server.wait_for("ready")
        with Client(server.target) as client:
            for _ in range(10):
                client.put(Message("orders", b"x", queue_id=0))
            with client.consumer(
                "orders", reader_group="billing", start=Start.EARLIEST
            ) as consumer:
                assert sum(1 for _ in consumer.to_end()) == 10
                consumer.commit()
            for _ in range(4):
                client.put(Message("orders", b"x", queue_id=0))
        yield server


def run(server: ServerProcess, *arguments: str) -> Result:
    command = ["top", "--interval", "0.1", "--server", server.target, *arguments]
    return kvcq(*command)


def test_once_as_a_document(server: ServerProcess) -> None:
    done = run(server, "--once", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["server"], found["ready"]) == (server.target, True)
    assert (found["topicCount"], found["groupCount"]) == (1, 1)
    [group] = found["groups"]
    assert (group["group"], group["topic"]) == ("billing", "orders")
    assert group["messages"] == 4
    assert group["behindS"] >= 0
    assert found["rates"]["messagesIn"] == 0, "of this time, not of all"
    assert found["levels"]["memoryBytes"] > 0
    assert found["jobs"] == []


def test_once_for_people_and_where_there_is_no_terminal(server: ServerProcess) -> None:
    for options in (["--once"], []):
        shown = run(server, *options).stdout
        assert f"at {server.target}, up " in shown
        assert "billing" in shown


def test_no_server_is_told_as_by_every_command() -> None:
    done = kvcq("top", "--once", "--server", "127.0.0.1:1", "--json")
    assert done.exit_code == 3
    assert json.loads(done.stderr)["error"]["code"] == "CANNOT_CONNECT"


@pytest.mark.parametrize("wrong", [["--interval", "0"], ["--topics", "0"], ["--groups", "-1"]])
def test_what_makes_no_sense_is_refused(server: ServerProcess, wrong: list[str]) -> None:
    assert run(server, *wrong).exit_code == 2


def test_on_a_terminal_it_goes_on_until_it_is_interrupted(server: ServerProcess) -> None:
    ours, its = pty.openpty()
    command = [sys.executable, "-m", "server", "top", "--interval", "0.1"]
    with child_process(
        [*command, "--server", server.target],
        cwd=ROOT,
        stdin=its,
        stdout=its,
        stderr=its,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"},
    ) as process:
        os.close(its)
        read = b""
        while read.count(b"billing") < 3:
            read += os.read(ours, 4096)
        process.send_signal(signal.SIGINT)
        try:
            while os.read(ours, 4096):
                pass
        except OSError:  # the other end is closed
            pass
        assert process.wait(TIMEOUT_S) == 130
    os.close(ours)
    assert b"\x1b[?1049h" in read, "on the other screen, so that what was there stays"
