"""RocketMQ's own Python client, as PyPI has it, in a process of its own: through a restart of the
server, and through one that is killed in the middle."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kvcq_client import Client, Message
from tests.packaging.environment import Environment
from tests.support.free_port import free_port
from tests.support.server_process import ServerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.packages, pytest.mark.timeout(900)]

PROGRAM = Path(__file__).with_name("python_program.py")
ANSWER_S = 120.0


class Program:
    """The client's process, command by command; what it is pushed stands apart."""

    def __init__(self, python: Path, home: Path, target: str) -> None:
        self.pushed: queue.Queue[dict[str, Any]] = queue.Queue()
        self._answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self._process = subprocess.Popen(
            [str(python), "-W", "ignore", str(PROGRAM), target],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            # It writes a log below the home directory.
            env={"PATH": os.environ["PATH"], "HOME": str(home)},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            mark, _, text = line.partition(" ")
            if mark == "ANSWER":
                answer = json.loads(text)
                (self.pushed if "pushed" in answer else self._answers).put(answer)

    def try_(self, name: str, **given: object) -> dict[str, Any]:
        """The answer, whatever it is."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, given]) + "\n")
        self._process.stdin.flush()
        answer = self._answers.get(timeout=ANSWER_S)
        assert answer.pop("done") == name
        return answer

    def do(self, name: str, **given: object) -> dict[str, Any]:
        answer = self.try_(name, **given)
        assert "error" not in answer, answer
        return answer

    def do_when_served(self, name: str, **given: object) -> None:
        """The client says at once that it is not connected, and connects again by itself."""
        end_s = time.monotonic() + ANSWER_S
        while "error" in (answer := self.try_(name, **given)):
            assert time.monotonic() < end_s, answer

    def send(self, topic: str, *bodies: str, **given: object) -> list[str]:
        ids: list[str] = self.do("send", topic=topic, bodies=bodies, **given)["ids"]
        return ids

    def until_pushed(self, *bodies: str) -> list[dict[str, Any]]:
        """All that was pushed until each of these was taken well."""
        left, seen = set(bodies), []
        while left:
            one = self.pushed.get(timeout=ANSWER_S)
            seen.append(one)
            if not one["failed"]:
                left.discard(one["pushed"]["body"])
        return seen

    def receive_all(self, count: int) -> list[dict[str, Any]]:
        """That many messages, in as many receives as it takes."""
        end_s = time.monotonic() + ANSWER_S
        found: list[dict[str, Any]] = []
        while len(found) < count:
            assert time.monotonic() < end_s, found
            found += self.try_("receive").get("messages", [])  # it fails while nobody serves
        return found

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("rocketmq-python")
    Environment(directory).install("rocketmq-python-client==5.1.2")
    return directory / "bin" / "python"


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def program(python: Path, tmp_path: Path, port: int) -> Iterator[Program]:
    started = Program(python, tmp_path, f"127.0.0.1:{port}")
    yield started
    started.close()


def _server(directory: Path, port: int) -> ServerProcess:
    server = ServerProcess(directory / "store", port=port)
    server.wait_for("ready")
    return server


def _end(server: ServerProcess, how: signal.Signals) -> None:
    server.send(how)
    assert server.wait() == (0 if how is signal.SIGTERM else -how)


def test_a_program_for_rocketmq_sends_and_receives(
    program: Program, tmp_path: Path, port: int
) -> None:
    with _server(tmp_path, port):
        program.do("producer", topic="orders")
        program.send("orders", "plain", tag="paid", keys="order-1", properties={"colour": "blue"})
        program.send("orders", "f1", "f2", "f3", message_group="customer-7")
        program.do("simple", group="workers", topic="orders")
        got = {one["body"]: one for one in program.receive_all(4)}
        plain = got["plain"]
        assert (plain["tag"], plain["keys"], plain["attempt"]) == ("paid", ["order-1"], 1)
        assert plain["properties"] == {"colour": "blue"}
        assert [one["body"] for one in got.values() if one["group"]] == ["f1", "f2", "f3"]
        program.do("change", id=plain["id"], invisible_s=1)
        program.do("ack", ids=[one["id"] for one in got.values() if one["group"]])
        (again,) = program.receive_all(1)
        assert (again["id"], again["attempt"]) == (plain["id"], 2)
        program.do("ack", ids=[again["id"]])
        assert program.do("receive")["messages"] == []
        refused = program.try_("send", topic="orders", bodies=["x"], delivery_timestamp=1 << 31)
        assert "DELAY" in refused["error"]
        with Client(f"127.0.0.1:{port}") as ours:
            ours.put(Message("orders", b"from kvcq", tag="t", keys=("k",)))
            (theirs,) = program.receive_all(1)
            assert (theirs["body"], theirs["tag"], theirs["keys"]) == ("from kvcq", "t", ["k"])
            (found,) = ours.query("orders", plain["id"]).messages
            assert (found.body, found.tag) == (b"plain", "paid")
        program.do("stop")


def test_a_push_consumer_takes_each_message_and_again_what_failed(
    program: Program, tmp_path: Path, port: int
) -> None:
    with _server(tmp_path, port):
        program.do("producer", topic="orders")
        program.do("push", group="pushed", topic="orders")
        program.send("orders", "fail-once", "a", "b")
        seen = program.until_pushed("fail-once", "a", "b")
        attempts = [
            one["pushed"]["attempt"] for one in seen if one["pushed"]["body"] == "fail-once"
        ]
        assert attempts == [1, 2]
        program.do("stop")


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_clients_go_on_through_a_restart_and_nothing_acknowledged_comes_again(
    program: Program, tmp_path: Path, port: int, how: signal.Signals
) -> None:
    with _server(tmp_path, port) as server:
        program.do("producer", topic="orders")
        program.send("orders", "acknowledged", "held")
        program.do("simple", group="workers", topic="orders")
        got = {one["body"]: one["id"] for one in program.receive_all(2)}
        program.do("ack", ids=[got["acknowledged"]])
        program.do("push", group="pushed", topic="orders")
        program.until_pushed("acknowledged", "held")
        _end(server, how)
    with _server(tmp_path, port):
        # Its handle is from before.
        program.do_when_served("ack", ids=[got["held"]])
        program.send("orders", "after")
        assert [one["body"] for one in program.receive_all(1)] == ["after"]
        seen = [one["pushed"]["body"] for one in program.until_pushed("after")]
        # Killed right behind the listener's return, the server may not have heard of it.
        assert set(seen) - {"acknowledged", "held"} == {"after"}
        program.do("stop")
