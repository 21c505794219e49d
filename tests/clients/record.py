"""Records conversations of RocketMQ's clients with this server, for the tests of the server:

    python -m tests.clients.record FILE COMMAND...

COMMAND begins a program of this folder, by its whole path, such as `python /.../python_program.py`;
FILE's name begins with that of its client.
"""

from __future__ import annotations

import json
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from kvcq_client import Client, MessageType
from tests.clients.official import GO, JAVA, NODE, PYTHON, RUST
from tests.clients.program import starting
from tests.clients.recorder import Recorder
from tests.clients.steps import served
from tests.support.free_port import free_port

if TYPE_CHECKING:
    from tests.clients.program import Program

_CLIENTS = (PYTHON, NODE, JAVA, GO, RUST)


def send_and_be_given(program: Program) -> None:
    """Producer, simple consumer and push consumer of a group without an order."""
    program.do("producer", topic="orders")
    program.send("orders", "plain", tag="paid", keys="order-1", properties={"colour": "blue"})
    program.send("orders", "f1", "f2", message_group="customer-7")
    program.send("orders", "fail-once")
    program.do("simple", group="workers", topic="orders")
    got = {one["body"]: one["id"] for one in program.receive_all(4)}
    if "change" not in program.lacks:
        program.do("change", id=got.pop("plain"), invisible_s=1)
    program.do("ack", ids=[*got.values()])
    if "change" not in program.lacks:
        (again,) = program.receive_all(1)
        program.do("ack", ids=[again["id"]])
    if "push" not in program.lacks:
        program.do("push", group="pushed", topic="orders")
        program.until_pushed("plain", "f2", "fail-once")
    program.do("stop")


def be_pushed_in_order(program: Program) -> None:
    """A push consumer of a group in order, with a failure and a dead letter."""
    program.do("producer", topic="sequence")
    program.send("sequence", "a1", "fail-a2", "poison-a3", "a4", message_group="a")
    program.send("sequence", "b1", "b2", message_group="b")
    if "push" not in program.lacks:
        program.do("push", group="in-order", topic="sequence")
        program.until_pushed("a4", "b2")
    program.do("stop")


def main(file: Path, command: list[str]) -> None:
    port = free_port()
    with (
        tempfile.TemporaryDirectory() as directory,
        closing(Recorder(f"127.0.0.1:{port}")) as recorder,
        served(Path(directory, "store"), port),
    ):
        with Client(f"127.0.0.1:{port}") as ours:  # as tests/server/rocketmq/test_recorded.py
            ours.create_topic("sequence", 4, message_type=MessageType.FIFO)
            ours.create_group("in-order", in_order=True, max_deliveries=2, backoff_ms=(1000,))
        (client,) = (
            one for one in (PYTHON, NODE, JAVA, GO, RUST) if file.name.startswith(one.name)
        )
        with starting(command, Path(directory), client.lacks) as start:
            for steps in (send_and_be_given, be_pushed_in_order):
                steps(start(f"127.0.0.1:{recorder.port}"))
    file.write_text("[\n" + ",\n".join(map(json.dumps, recorder.calls)) + "\n]\n", "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
