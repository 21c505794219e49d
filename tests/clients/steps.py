"""What each client has to do, by itself and through a restart of the server."""

from __future__ import annotations

import gzip
import signal
import time
from typing import TYPE_CHECKING, Any

import grpc

from kvcq_client import Client, Message, MessageType
from server.rocketmq.pb import messaging_pb2 as pb
from server.rocketmq.pb import values_pb2 as v2
from server.rocketmq.pb.messaging_pb2_grpc import MessagingServiceStub
from tests.clients.program import ANSWER_S
from tests.support.command_line import kvcq, lines_of
from tests.support.free_port import free_port
from tests.support.server_process import ServerProcess
from tests.support.until import wait_until
from tests.support.users import add_users, secret_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.clients.program import Program, Start
    from tests.support.certificates import Authority


def served(directory: Path, port: int, *flags: str) -> ServerProcess:
    server = ServerProcess(directory, *flags, port=port)
    server.wait_for("ready")
    return server


_GIVEN = {"tag": "paid", "keys": "order-1", "properties": {"colour": "blue"}}


def _is_as_it_was_sent(program: Program, received: dict[str, Any]) -> None:
    assert received["tag"] == "paid"
    if "keys" not in program.lacks:
        assert received["keys"] == ["order-1"]
        # A dead letter has properties of its own beside those.
        assert received["properties"].items() >= {"colour": "blue"}.items()


def send_and_receive(program: Program, directory: Path, port: int, *flags: str) -> None:
    with served(directory, port, *flags), Client(f"127.0.0.1:{port}") as ours:
        program.do("producer", topic="orders")
        program.send("orders", "plain", **_GIVEN)
        program.send("orders", "f1", "f2", "f3", message_group="customer-7")
        program.do("simple", group="workers", topic="orders")
        got = {one["body"]: one for one in program.receive_all(4)}
        plain = got["plain"]
        assert plain["attempt"] == 1
        _is_as_it_was_sent(program, plain)
        assert [one["body"] for one in got.values() if one["group"]] == ["f1", "f2", "f3"]
        program.do("ack", ids=[one["id"] for one in got.values() if one["group"]])
        if "change" not in program.lacks:
            program.do("change", id=plain["id"], invisible_s=1)
            (again,) = program.receive_all(1)
            assert (again["id"], again["attempt"]) == (plain["id"], 2)
        program.do("ack", ids=[plain["id"]])
        assert program.do("receive")["messages"] == []
        ours.put(Message("orders", b"from kvcq", tag="t", keys=("k",)))
        (theirs,) = program.receive_all(1)
        assert (theirs["body"], theirs["tag"]) == ("from kvcq", "t")
        (found,) = ours.query("orders", plain["id"]).messages
        assert (found.body, found.tag) == (b"plain", "paid")
        program.do("stop")


def be_pushed(program: Program, directory: Path, port: int) -> None:
    """Each message is pushed, and again what failed; what fails each time is a dead letter,
    which the client reads as any message, also when the server was killed behind it."""
    with served(directory, port) as server, Client(f"127.0.0.1:{port}") as ours:
        ours.create_group("pushed", max_deliveries=2, backoff_ms=(1000,))
        program.do("producer", topic="orders")
        program.do("push", group="pushed", topic="orders")
        program.send("orders", "fail-once", "a", "b")
        (poison,) = program.send("orders", "poison", **_GIVEN)
        seen = program.until_pushed("fail-once", "a", "b")
        while sum(one["failed"] for one in seen) < 3:
            seen.append(program.pushed.get(timeout=ANSWER_S))
        for body in ("fail-once", "poison"):
            tries = [one["pushed"] for one in seen if one["pushed"]["body"] == body]
            assert [one["attempt"] for one in tries] == [1, 2]
        wait_until(lambda: ours.dead_letters("pushed"))
        server.send(signal.SIGKILL)
        server.wait()
    with served(directory, port):
        program.do_when_served("simple", group="readers", topic="%DLQ%pushed")
        (dead,) = program.receive_all(1)
        assert (dead["body"], dead["id"]) == ("poison", poison)
        _is_as_it_was_sent(program, dead)
        program.do("ack", ids=[dead["id"]])


def deliver_later(program: Program, directory: Path, port: int) -> None:
    """A message with a time is received then, and not before; the server was killed meanwhile."""
    with served(directory, port) as server:
        program.do("producer", topic="orders")
        due_s = int(time.time()) + 15
        program.send("orders", "later", delivery_timestamp=due_s)
        refused = program.try_("send", topic="orders", bodies=["x"], delivery_timestamp=1 << 31)
        assert "more than 40 days ahead" in refused["error"]
        server.send(signal.SIGKILL)
        server.wait()
    with served(directory, port), Client(f"127.0.0.1:{port}") as ours:
        program.do_when_served("send", topic="orders", bodies=["now"])
        program.do("simple", group="workers", topic="orders")
        assert [one["body"] for one in program.receive_all(2)] == ["now", "later"]
        (found,) = ours.pull("orders", *_place_of(ours, b"later"), max_messages=1).messages
        assert due_s * 1000 <= found.store_time_ms < due_s * 1000 + 5000


def recall(program: Program, directory: Path, port: int) -> None:
    """What is recalled before its time is never received, also by a handle from before the server
    was killed; at its time it is too late."""
    with served(directory, port) as server:
        program.do("producer", topic="orders")
        given = {"topic": "orders", "delivery_timestamp": int(time.time()) + 15}
        sent = program.do("send", bodies=["recalled", "recalled later", "kept"], **given)
        first, second, kept = sent["handles"]
        assert program.do("recall", topic="orders", handle=first)["id"] == sent["ids"][0]
        server.send(signal.SIGKILL)
        server.wait()
    with served(directory, port), Client(f"127.0.0.1:{port}") as ours:
        program.do_when_served("recall", topic="orders", handle=second)
        program.do("simple", group="workers", topic="orders")
        (got,) = program.receive_all(1)
        assert (got["body"], got["id"]) == ("kept", sent["ids"][2])
        assert "error" in program.try_("recall", topic="orders", handle=kept)
        assert program.do("receive")["messages"] == []
        assert sum(each.max_offset for each in ours.topic_queues("orders")[1]) == 1


def decide_transactions(start: Start, directory: Path, port: int) -> None:
    """Transactions have one outcome, also when their producer and the server were killed: another
    producer of the topic is asked, six seconds after the message at the earliest."""
    target = f"127.0.0.1:{port}"
    with served(directory, port) as server:
        first = start(target)
        first.do("producer", topic="orders")
        done = first.do("half", topic="orders", body="committed", resolution="commit")
        first.do("half", topic="orders", body="dropped", resolution="rollback")
        left = first.do("half", topic="orders", body="orphan")
        first.do("half", topic="orders", body="bad orphan")
        first.kill()
        server.send(signal.SIGKILL)
        server.wait()
    with served(directory, port), Client(target) as ours:
        second = start(target)
        second.do("producer", topic="orders")
        asked = {second.pushed.get(timeout=ANSWER_S)["pushed"]["checked"] for _ in range(2)}
        assert asked == {"orphan", "bad orphan"}
        second.do("simple", group="workers", topic="orders")
        got = {one["body"]: one["id"] for one in second.receive_all(2)}
        assert got == {"committed": done["id"], "orphan": left["id"]}
        wait_until(lambda: not ours.open_transactions())
        assert second.do("receive")["messages"] == []
        second.do("stop")


def receive_the_highest_priority_first(program: Program, directory: Path, port: int) -> None:
    with served(directory, port), Client(f"127.0.0.1:{port}") as ours:
        ours.create_topic("urgent", 8, message_type=MessageType.PRIORITY)
        program.do("producer", topic="urgent")
        for priority in (1, 7, 2, 3):
            bodies = (f"{priority}-a", f"{priority}-b")
            program.send("urgent", *bodies, priority=priority)
        assert "error" in program.try_("send", topic="urgent", bodies=["without"])
        program.do("simple", group="workers", topic="urgent")
        got = [one["body"] for one in program.receive_all(8)]
        expected = [f"{priority}-{one}" for priority in (7, 3, 2, 1) for one in "ab"]
        assert got == expected, got
        program.do("stop")


def exchange(programs: Sequence[Program], directory: Path, port: int) -> None:
    """What the program of one client sends, and kvcq's own, each other one receives as it was: with
    tag, keys and properties, in the order of a message group, and compressed; `kvcq query` and
    `kvcq get` find it by its ids."""
    target = f"127.0.0.1:{port}"
    with served(directory, port), Client(target) as ours:
        sent: dict[str, str] = {}
        of_group: list[str] = []
        for number, program in enumerate(programs):
            program.do("producer", topic="orders")
            body = f"{number}: äöü 消息 " * 1000
            (sent[body],) = program.send("orders", body, **_given_by(number))
            bodies = [f"{number}: group {n}" for n in range(3)]
            of_group += bodies
            sent.update(
                zip(bodies, program.send("orders", *bodies, message_group="g"), strict=True)
            )
        number = len(programs)
        packed, plain = f"{number}: packed " * 1000, f"{number}: plain"
        sent[packed] = _send_compressed(target, packed, number)
        message = Message(
            "orders",
            plain.encode(),
            tag=f"t{number}",
            keys=(f"k{number}",),
            properties={"by": str(number)},
        )
        sent[plain] = ours.put(message).message_id
        for number, program in enumerate(programs):
            program.do("simple", group=f"workers-{number}", topic="orders")
            got = program.receive_all(len(sent))
            program.do("ack", ids=[one["id"] for one in got])
            program.do("stop")
            if "inflate" in program.lacks:
                (one,) = (each for each in got if each["id"] == sent[packed])
                assert one["body"].startswith("\x1f")
                one["body"] = packed
            assert {one["body"]: one["id"] for one in got} == sent
            assert [one["body"] for one in got if one["group"]] == of_group
            for one in got:
                if not one["group"]:
                    by = one["body"].partition(":")[0]
                    given = {**one, "keys": " ".join(one["keys"])}
                    assert given.items() >= _given_by(int(by)).items()
        received = ours.receive("orders", group="ours", max_messages=len(sent))
        assert {one.message.body.decode() for one in received} == sent.keys()
        for body, message_id in sent.items():
            if message_id != sent[plain]:
                (found,) = lines_of("query", "orders", message_id, server=target)
                message_id = found["messageId"]  # the other of its two ids
            assert kvcq("get", message_id, "--raw", server=target).stdout == body


def _given_by(number: int) -> dict[str, Any]:
    return {"tag": f"t{number}", "keys": f"k{number}", "properties": {"by": str(number)}}


def _send_compressed(target: str, body: str, number: int) -> str:
    """As a client that compresses: these releases receive such bodies and send none."""
    given = _given_by(number)
    system = v2.SystemProperties(
        message_id="01" + "AB" * 16,
        tag=given["tag"],
        keys=[given["keys"]],
        body_encoding=v2.GZIP,
    )
    message = v2.Message(
        topic=v2.Resource(name="orders"),
        body=gzip.compress(body.encode()),
        user_properties=given["properties"],
        system_properties=system,
    )
    with grpc.insecure_channel(target) as channel:
        stub = MessagingServiceStub(channel)  # type: ignore[no-untyped-call]
        answer = stub.SendMessage(
            pb.SendMessageRequest(messages=[message]), metadata=[("x-mq-client-id", "compresses")]
        )
    assert answer.status.code == v2.OK, answer
    return system.message_id


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
        if "push" not in program.lacks:
            _be_pushed_in_order(program, ours)
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


def _be_pushed_in_order(program: Program, ours: Client) -> None:
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


def with_a_tls_port(authority: Authority) -> tuple[int, Sequence[str]]:
    """The port, and what the server is told for it."""
    port = free_port()
    cert, key = map(str, authority.issue())
    return port, ("--tls-cert", cert, "--tls-key", key, "--set", f"server.tls_port={port}")


def be_a_user(start: Start, directory: Path, port: int, authority: Authority) -> None:
    """Signed calls of a user over TLS and without, on two ports, and what others are told."""
    rights = ["publish topic orders", "subscribe topic orders", "subscribe group workers"]
    add_users(directory, {"app": rights, "other": []}, 4 << 20)
    secured, flags = with_a_tls_port(authority)
    with served(directory, port, "--access", *flags):
        app = ("app", secret_of("app"))
        for where, kind in ((port, ()), (secured, ("tls",))):
            program = start(f"127.0.0.1:{where}", *app, *kind)
            if program.lacks & {*kind}:
                continue
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
        if "push" not in program.lacks:
            program.do("push", group="pushed", topic="orders")
            program.until_pushed("acknowledged", "held")
        server.send(how)
        assert server.wait() == (0 if how is signal.SIGTERM else -how)
    with served(directory, port):
        # Its handle is from before.
        program.do_when_served("ack", ids=[got["held"]])
        program.do_when_served("send", topic="orders", bodies=["after"])
        assert [one["body"] for one in program.receive_all(1)] == ["after"]
        if "push" not in program.lacks:
            seen = [one["pushed"]["body"] for one in program.until_pushed("after")]
            # Killed right behind the listener's return, the server may not have heard of it.
            assert set(seen) - {"acknowledged", "held"} == {"after"}
        # Not stopped: Java's client waits two minutes when it ends while it opens a stream again.
