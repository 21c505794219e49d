"""RocketMQ's own client for Node, as npm has it, in a process of its own, beside the Python one."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kvcq_client import Client, Message
from tests.clients.program import Program
from tests.clients.restart import go_on_through_a_restart, served
from tests.support.free_port import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

NODE, NPM = shutil.which("node"), shutil.which("npm")
pytestmark = [
    pytest.mark.packages,
    pytest.mark.timeout(900),
    pytest.mark.skipif(NODE is None or NPM is None, reason="node is not installed"),
]
PROGRAM = Path(__file__).with_name("node_program.cjs")
RELEASE = "rocketmq-client-nodejs@1.0.8"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("rocketmq-node")
    options = ("--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(directory))
    assert NPM is not None
    subprocess.run([NPM, "install", *options, RELEASE], check=True, timeout=300)
    return directory / "node_modules"


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def program(packages: Path, tmp_path: Path, port: int) -> Iterator[Program]:
    assert NODE is not None
    command = ("env", f"NODE_PATH={packages}", NODE, PROGRAM, f"127.0.0.1:{port}")
    started = Program(command, tmp_path)
    yield started
    started.close()


def test_a_program_for_rocketmq_sends_receives_and_is_pushed(
    program: Program, tmp_path: Path, port: int
) -> None:
    with served(tmp_path / "store", port):
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
        program.do("push", group="pushed", topic="orders")
        with Client(f"127.0.0.1:{port}") as ours:
            ours.put(Message("orders", b"fail-once", tag="t", keys=("k",)))
            seen = program.until_pushed("fail-once", "plain", "f3")
            attempts = [
                one["pushed"]["attempt"] for one in seen if one["pushed"]["body"] == "fail-once"
            ]
            assert attempts == [1, 2]
            (found,) = ours.query("orders", plain["id"]).messages
            assert (found.body, found.tag) == (b"plain", "paid")
        program.do("stop")


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_it_goes_on_through_a_restart_and_nothing_acknowledged_comes_again(
    program: Program, tmp_path: Path, port: int, how: signal.Signals
) -> None:
    go_on_through_a_restart(program, tmp_path / "store", port, how)
