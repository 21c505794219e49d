"""Lite topics with RocketMQ's own Python client: both of its consumers, through a kill."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kvcq_client import Client, Message, lite_queue
from tests.clients.program import Program, starting
from tests.clients.steps import served
from tests.packaging.environment import Environment
from tests.support.free_port import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.packages, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("python_lite_program.py")


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
    command = ("env", f"PYTHONPATH={ROOT}", python, "-W", "ignore", PROGRAM)
    with starting(command, tmp_path) as start:
        yield start(f"127.0.0.1:{port}")


def _ready(program: Program, port: int) -> None:
    with Client(f"127.0.0.1:{port}") as ours:
        ours.create_lite_parent("chats")
    program.do("producer", topic="chats")


def test_a_simple_consumer_receives_its_lite_topics_through_a_kill(
    program: Program, tmp_path: Path, port: int
) -> None:
    with served(tmp_path / "store", port) as server:
        _ready(program, port)
        program.do("send_lite", topic="chats", lite="tea-1", bodies=["t0", "t1"])
        program.do("send_lite", topic="chats", lite="milk-2", bodies=["m0"])
        program.do("send_lite", topic="chats", lite="coffee", bodies=["c0"])
        program.do("lite_simple", group="workers", parent="chats")
        # It starts before it has its settings, and refuses any name until then.
        program.do_when_served("subscribe", names=["tea-1", "milk-2"])
        got = {one["body"]: one for one in program.receive_all(2)}
        assert {body: one["lite"] for body, one in got.items()} == {"t0": "tea-1", "m0": "milk-2"}
        program.do("change", id=got["m0"]["id"], invisible_s=10)
        program.do("ack", ids=[one["id"] for one in got.values()])
        (held,) = program.receive_all(1)
        assert (held["body"], held["lite"], held["attempt"]) == ("t1", "tea-1", 1)
        server.send(signal.SIGKILL)
        server.wait()
    with served(tmp_path / "store", port), Client(f"127.0.0.1:{port}") as ours:
        # Its handle is from before; what it is subscribed to it says again by itself.
        program.do_when_served("ack", ids=[held["id"]])
        ours.put(Message("chats", b"ours", light_queues=(lite_queue("chats", "milk-2"),)))
        (after,) = program.receive_all(1)
        assert (after["body"], after["lite"]) == ("ours", "milk-2")
        program.do("ack", ids=[after["id"]])
        program.do("unsubscribe", lite="milk-2")
        program.do("send_lite", topic="chats", lite="milk-2", bodies=["m1"])
        program.do("send_lite", topic="chats", lite="tea-1", bodies=["t2"])
        assert [one["body"] for one in program.receive_all(1)] == ["t2"]


def test_a_push_consumer_takes_each_lite_topic_in_order(
    program: Program, tmp_path: Path, port: int
) -> None:
    with served(tmp_path / "store", port):
        _ready(program, port)
        program.do("lite_push", group="pushed", parent="chats")
        program.do_when_served("subscribe", names=["tea-1", "milk-2"], push=True)
        program.do("send_lite", topic="chats", lite="tea-1", bodies=["t0", "fail-t1", "t2"])
        program.do("send_lite", topic="chats", lite="milk-2", bodies=["m0", "m1"])
        program.do("send_lite", topic="chats", lite="coffee", bodies=["c0"])
        seen = program.until_pushed("t2", "m1")
        of_tea = [one["pushed"] for one in seen if one["pushed"]["lite"] == "tea-1"]
        assert [one["body"] for one in of_tea] == ["t0", "fail-t1", "fail-t1", "t2"]
        rest = [one["pushed"]["body"] for one in seen if one["pushed"]["lite"] != "tea-1"]
        assert rest == ["m0", "m1"]
        program.do("stop")
