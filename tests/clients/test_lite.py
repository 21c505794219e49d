"""Lite topics with RocketMQ's own clients: both consumers where there are two, through kills."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from kvcq_client import Client, LiteSettings, Message, lite_queue
from tests.clients.official import GO_LITE, JAVA, NODE, PYTHON_LITE
from tests.clients.program import Program, starting
from tests.clients.steps import served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.clients.official import Installed, Official

pytestmark = pytest.mark.timeout(1800)

PYTHON_ONLY = pytest.param(PYTHON_LITE, marks=pytest.mark.packages, id="python")
CLIENTS = [
    PYTHON_ONLY,
    pytest.param(NODE, marks=pytest.mark.packages, id="node"),
    pytest.param(JAVA, marks=pytest.mark.clients, id="java"),
    pytest.param(GO_LITE, marks=pytest.mark.clients, id="go"),
]


@pytest.fixture
def client(request: pytest.FixtureRequest) -> Official:
    client: Official = request.param
    return client


@pytest.fixture
def program(client: Official, installed: Installed, tmp_path: Path, port: int) -> Iterator[Program]:
    with starting(("env", f"user.home={tmp_path}", *installed(client)), tmp_path) as start:
        yield start(f"127.0.0.1:{port}")


def _ready(program: Program, port: int) -> None:
    with Client(f"127.0.0.1:{port}") as ours:
        ours.create_lite_parent("chats")
    program.do("producer", topic="chats")


@pytest.mark.parametrize("client", [PYTHON_ONLY], indirect=True)
def test_a_simple_consumer_receives_its_lite_topics_through_a_kill(
    program: Program, tmp_path: Path, port: int
) -> None:
    with served(tmp_path / "store", port) as server:
        _ready(program, port)
        program.send("chats", "t0", "t1", lite="tea-1")
        program.send("chats", "m0", lite="milk-2")
        program.send("chats", "c0", lite="coffee")
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
        program.send("chats", "m1", lite="milk-2")
        program.send("chats", "t2", lite="tea-1")
        assert [one["body"] for one in program.receive_all(1)] == ["t2"]


@pytest.mark.parametrize("client", CLIENTS, indirect=True)
def test_a_push_consumer_takes_each_lite_topic_in_order_also_behind_a_kill(
    program: Program, tmp_path: Path, port: int
) -> None:
    with served(tmp_path / "store", port) as server:
        _ready(program, port)
        program.do("lite_push", group="pushed", parent="chats")
        program.do_when_served("subscribe", names=["tea-1", "milk-2"])
        program.send("chats", "t0", "fail-t1", "t2", lite="tea-1")
        program.send("chats", "m0", "m1", lite="milk-2")
        program.send("chats", "c0", lite="coffee")
        seen = program.until_pushed("t2", "m1")
        of_tea = [one["pushed"] for one in seen if one["pushed"]["lite"] == "tea-1"]
        assert [one["body"] for one in of_tea] == ["t0", "fail-t1", "fail-t1", "t2"]
        rest = [one["pushed"]["body"] for one in seen if one["pushed"]["lite"] != "tea-1"]
        assert rest == ["m0", "m1"]
        program.do("unsubscribe", lite="milk-2")
        server.send(signal.SIGKILL)
        server.wait()
    with served(tmp_path / "store", port):
        program.do_when_served("send", topic="chats", bodies=["m2"], lite="milk-2")
        program.send("chats", "t3", lite="tea-1")
        # Killed right behind the listener's return, the server may not have heard of it.
        assert {one["pushed"]["body"] for one in program.until_pushed("t3")} <= {"t2", "t3", "m1"}


@pytest.mark.parametrize("client", CLIENTS, indirect=True)
def test_more_names_than_its_group_allows_are_refused(
    program: Program, tmp_path: Path, port: int
) -> None:
    # Names of a letter: Python's client sends each letter of a name as one, see its program.
    with served(tmp_path / "store", port), Client(f"127.0.0.1:{port}") as ours:
        _ready(program, port)
        ours.create_group("pushed", in_order=True, lite=LiteSettings("chats", client_quota=2))
        program.do("lite_push", group="pushed", parent="chats")
        program.do_when_served("subscribe", names=["a", "b"])
        assert "quota" in program.try_("subscribe", names=["c"])["error"].lower()
        program.do("unsubscribe", lite="b")
        program.do("subscribe", names=["c"])
        program.send("chats", "c0", lite="c")
        assert [one["pushed"]["body"] for one in program.until_pushed("c0")] == ["c0"]
        program.do("stop")
