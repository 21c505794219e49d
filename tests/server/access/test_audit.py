"""server/access/audit.py over real gRPC: a line for each refusal and each act."""

from __future__ import annotations

import json
import logging
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from kvcq_client import (
    AsyncClient,
    Credentials,
    InvalidArgumentError,
    Message,
    PermissionDeniedError,
    Queue,
    Right,
    Role,
)
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.pb.v1 import kvcq_pb2_grpc
from kvcq_client.transport.secured import Signer
from server.access import AUDIT, audit
from server.process import LineLimit
from tests.support.users import ADMIN, client_of, refusal, secret_of

if TYPE_CHECKING:
    from tests.support.serving import Served


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [json.loads(record.message) for record in caplog.records if record.name == AUDIT]


async def test_refusals_and_acts_are_audited(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, AUDIT)
    async with client_of(served, "ops") as ops, client_of(served, "reader") as reader:
        secret = await ops.access.create_user("new", secret="a-secret-nobody-sees")
        await ops.access.grant("new", [Right(Role.PUBLISH, topic="a*")])
        await ops.create_topics(["orders", "a1"])
        await reader.statistics()
        with pytest.raises(PermissionDeniedError):
            await reader.delete_topic("orders")
        with pytest.raises(PermissionDeniedError):
            await reader.put(Message("orders", b"a-body-nobody-sees"))
        with pytest.raises(Exception, match="unknown user"):
            await ops.access.delete_user("never")
    async with client_of(served, "reader", "wrong-secret") as wrong:
        await refusal(wrong)
    async with AsyncClient(served.target) as nobody:
        await refusal(nobody)
    found = lines(caplog)
    assert [(one["event"], one.get("user"), one["method"]) for one in found] == [
        ("done", "ops", "CreateUser"),
        ("done", "ops", "Grant"),
        ("done", "ops", "CreateTopics"),
        ("refused", "reader", "DeleteTopic"),
        ("refused", "reader", "Put"),
        ("failed", "ops", "DeleteUser"),
        ("refused", "reader", "GetStatistics"),
        ("refused", None, "GetStatistics"),
    ]
    assert found[0]["target"] == ["new"]
    assert found[1]["target"] == ["new", "publish topic a*"]
    assert found[2]["target"] == ["orders", "a1"]
    assert [one.get("reason") for one in found[3:]] == [
        "PERMISSION_DENIED",
        "PERMISSION_DENIED",
        "UNKNOWN_USER",
        "UNAUTHENTICATED",
        "UNAUTHENTICATED",
    ]
    for one in found:
        assert one["peer"].startswith("ipv4:127.0.0.1:")
        assert one["requestId"]
        assert one["time"].endswith("Z")
    assert secret not in caplog.text
    assert "a-body" not in caplog.text


async def test_a_caller_that_never_stops_does_not_fill_the_disk(
    served: Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 0.0
    monkeypatch.setattr(audit, "_limit", LineLimit(audit.AT_ONCE, lambda: now_s))
    caplog.set_level(logging.INFO, AUDIT)
    topics = (f"not-theirs-{number}" for number in count())
    headers: Any = Signer(Credentials("app", secret_of("app"))).headers()
    calls: Any = kvcq_pb2_grpc.CallServiceStub(served.channel).Calls(metadata=headers)

    async def flood() -> None:
        puts = [pb.PutRequest(message=pb.Message(topic=next(topics), body=b"x")) for _ in range(60)]
        many = [
            pb.Call(id=number, method="Put", request=put.SerializeToString())
            for number, put in enumerate(puts)
        ]
        await calls.write(pb.CallsRequest(calls=many))
        left = len(many)
        while left:
            left -= len((await calls.read()).results)

    for _ in range(5):
        await flood()
    assert len(lines(caplog)) == audit.AT_ONCE
    async with client_of(served, "reader") as reader:
        with pytest.raises(PermissionDeniedError):
            await reader.put(Message("orders", b"x"))
    assert lines(caplog)[-1]["user"] == "reader", "others are still heard of"
    now_s = 1.0
    await flood()
    assert [one.get("leftOut") for one in lines(caplog)[audit.AT_ONCE + 1 :]] == [200]
    calls.cancel()


async def test_the_same_refusal_is_one_line_a_minute_with_a_count(
    served: Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A subscription is refused once for each queue of the topic, and tried again."""
    now_s = 0.0
    monkeypatch.setattr(audit, "_same", LineLimit(1, lambda: now_s, audit.SAME_S))
    caplog.set_level(logging.INFO, AUDIT)
    queues = {Queue("not-theirs", number): 0 for number in range(8)}

    async def refused(*wanted: Queue) -> None:
        async with (
            client_of(served, "app") as app,
            await app.consumer(dict.fromkeys(wanted, 0)) as consumer,
        ):
            for _ in wanted:
                with pytest.raises(PermissionDeniedError):
                    await consumer.batch(10.0)

    await refused(*queues)
    await refused(*queues)
    [line] = lines(caplog)
    assert "leftOut" not in line
    await refused(Queue("nor-this", 0))
    assert len(lines(caplog)) == 2, "another refusal is not hidden"
    now_s = audit.SAME_S
    await refused(*queues)
    assert [one.get("leftOut") for one in lines(caplog)] == [None, None, 15]


async def test_a_long_act_is_one_short_line(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, AUDIT)
    async with client_of(served, "ops") as ops:
        await ops.create_topics({f"t{number}-" + "x" * 80: 1 for number in range(500)})
    [line] = lines(caplog)
    assert line["target"][-1] == "and 480 more"
    assert len(json.dumps(line)) < 3000


async def test_acts_that_fail_without_end_do_not_fill_the_disk_either(
    served: Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bad names of topics, each another one: 2 MB of audit a second before. Acts that are done are
    all there."""
    now_s = 0.0
    monkeypatch.setattr(audit, "_limit", LineLimit(audit.AT_ONCE, lambda: now_s))
    monkeypatch.setattr(audit, "_same", LineLimit(1, lambda: now_s, audit.SAME_S))
    caplog.set_level(logging.INFO, AUDIT)
    async with client_of(served, "ops", ADMIN.secret) as ops:
        for number in range(audit.AT_ONCE + 20):
            with pytest.raises(InvalidArgumentError):
                await ops.create_topics([f"bad name {number}"])
        await ops.create_topics(["good"])
        now_s = 1.0
        with pytest.raises(InvalidArgumentError):
            await ops.create_topics(["bad name again"])
    found = lines(caplog)
    assert [one["event"] for one in found] == ["failed"] * audit.AT_ONCE + ["done", "failed"]
    assert found[-1]["leftOut"] == 20
