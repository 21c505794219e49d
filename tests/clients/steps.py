"""What each client has to do, by itself and through a restart of the server."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from kvcq_client import Client, Message, MessageType
from tests.support.free_port import free_port
from tests.support.server_process import ServerProcess
from tests.support.users import add_users, secret_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.clients.program import Program, Start
    from tests.support.certificates import Authority


def served(directory: Path, port: int, *flags: str) -> ServerProcess:
    server = ServerProcess(directory, *flags, port=port)
    server.wait_for("ready")
    return server


def send_receive_and_be_pushed(program: Program, directory: Path, port: int) -> None:
    with served(directory, port):
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


def deliver_later(program: Program, directory: Path, port: int) -> None:
    """A message with a time is received then, and not before."""
    with served(directory, port), Client(f"127.0.0.1:{port}") as ours:
        program.do("producer", topic="orders")
        due_s = int(time.time()) + 3
        program.send("orders", "later", delivery_timestamp=due_s)
        program.send("orders", "now")
        program.do("simple", group="workers", topic="orders")
        assert [one["body"] for one in program.receive_all(2)] == ["now", "later"]
        (found,) = ours.pull("orders", *_place_of(ours, b"later"), max_messages=1).messages
        assert due_s * 1000 <= found.store_time_ms < due_s * 1000 + 5000
        program.do("stop")


def _place_of(ours: Client, body: bytes) -> tuple[int, int]:
    _, queues = ours.topic_queues("orders")
    for queue in queues:
        for message in ours.pull("orders", queue.queue_id, 0).messages:
            if message.body == body:
                return queue.queue_id, message.queue_offset
    raise AssertionError(f"{body!r} is in no queue")


def keep_the_order_of_each_group(program: Program, directory: Path, port: int) -> None:
    """A push consumer and a simple consumer of groups in order: what fails is tried again before
    what is behind it, what fails each time is a dead letter, and then the next one comes."""
    with served(directory, port), Client(f"127.0.0.1:{port}") as ours:
        ours.create_topic("orders", message_type=MessageType.FIFO)
        program.do("producer", topic="orders")
        for group in ("pushed", "workers"):
            ours.create_group(group, in_order=True, max_deliveries=2, backoff_ms=(1000,))
        for group in ("a", "b"):
            program.send("orders", *(f"{group}{n}" for n in range(4)), message_group=group)
        program.send("orders", "c0", "fail-c1", "c2", "poison-c3", "c4", message_group="c")
        program.do("push", group="pushed", topic="orders")
        seen = program.until_pushed("a3", "b3", "c4")
        tried = [one["pushed"]["body"] for one in seen]
        for group in ("a", "b"):
            assert [body for body in tried if body[0] == group] == [f"{group}{n}" for n in range(4)]
        assert [body for body in tried if body[0] not in "ab"] == [
            "c0",
            *["fail-c1"] * 2,
            "c2",
            *["poison-c3"] * 2,
            "c4",
        ]
        assert [one["pushed"]["body"] for one in seen if one["failed"]] == [
            "fail-c1",
            "poison-c3",
            "poison-c3",
        ]
        (letter,) = ours.dead_letters("pushed")
        assert letter.topic == "orders"
        (dead,) = ours.receive("%DLQ%pushed", group="readers")
        assert dead.message.body == b"poison-c3"
        program.do("simple", group="workers", topic="orders")
        got: dict[str, list[str]] = {}
        while sum(map(len, got.values())) < 13:
            held = program.receive_all(1)
            # Of a message group, nobody has the next one before this one is done.
            assert len({one["group"] for one in held}) == len(held)
            for one in held:
                got.setdefault(one["group"], []).append(one["body"])
            program.do("ack", ids=[one["id"] for one in held])
        assert got == {
            "a": ["a0", "a1", "a2", "a3"],
            "b": ["b0", "b1", "b2", "b3"],
            "c": ["c0", "fail-c1", "c2", "poison-c3", "c4"],
        }
        program.do("stop")


def be_a_user(start: Start, directory: Path, port: int, authority: Authority) -> None:
    """Signed calls of a user over TLS and without, on two ports, and what others are told."""
    rights = ["publish topic orders", "subscribe topic orders", "subscribe group workers"]
    add_users(directory, {"app": rights, "other": []}, 4 << 20)
    secured = free_port()
    cert, key = map(str, authority.issue())
    files = ("--tls-cert", cert, "--tls-key", key)
    flags = ("--access", *files, "--set", f"server.tls_port={secured}")
    with served(directory, port, *flags):
        app = ("app", secret_of("app"))
        for where, kind in ((port, ()), (secured, ("tls",))):
            program = start(f"127.0.0.1:{where}", *app, *kind)
            program.do("producer", topic="orders")
            program.send("orders", f"by {where}")
            program.do("simple", group="workers", topic="orders")
            (got,) = program.receive_all(1)
            assert got["body"] == f"by {where}"
            program.do("ack", ids=[got["id"]])
            program.do("stop")
        for stranger in (("app", "wrong"), ("other", secret_of("other")), ()):
            program = start(f"127.0.0.1:{port}", *stranger)
            # Python's client starts, and says it at the first send.
            answers = [
                program.try_("producer", topic="orders"),
                program.try_("send", topic="orders", bodies=["x"]),
            ]
            assert any("error" in each for each in answers), stranger
            program.try_("stop")
        program = start(f"127.0.0.1:{port}", *app)
        program.do("simple", group="workers", topic="orders")
        assert program.do("receive")["messages"] == []


def go_on_through_a_restart(
    program: Program, directory: Path, port: int, how: signal.Signals
) -> None:
    """The server ends, by SIGTERM or SIGKILL, while a producer, a simple consumer with a message
    and a push consumer are connected."""
    with served(directory, port) as server:
        program.do("producer", topic="orders")
        program.send("orders", "acknowledged", "held")
        program.do("simple", group="workers", topic="orders")
        got = {one["body"]: one["id"] for one in program.receive_all(2)}
        program.do("ack", ids=[got["acknowledged"]])
        program.do("push", group="pushed", topic="orders")
        program.until_pushed("acknowledged", "held")
        server.send(how)
        assert server.wait() == (0 if how is signal.SIGTERM else -how)
    with served(directory, port):
        # Its handle is from before.
        program.do_when_served("ack", ids=[got["held"]])
        program.do_when_served("send", topic="orders", bodies=["after"])
        assert [one["body"] for one in program.receive_all(1)] == ["after"]
        seen = [one["pushed"]["body"] for one in program.until_pushed("after")]
        # Killed right behind the listener's return, the server may not have heard of it.
        assert set(seen) - {"acknowledged", "held"} == {"after"}
        # Not stopped: Java's client waits two minutes when it ends while it opens a stream again.
