"""Users of the store, by the signatures of RocketMQ's clients: see also access/test_needs.py."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from kvcq_client.transport import signature_of
from server.rocketmq.pb import values_pb2 as v2
from tests.server.rocketmq.client import Client, handle_of
from tests.support.users import guarded, secret_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.support.serving import Served

RIGHTS = {
    "sender": ["publish topic T"],
    "worker": ["subscribe topic T", "subscribe group g"],
    "other": ["admin topic X*", "admin group X*"],
}


def _signed(name: str, secret: str = "", off: timedelta = timedelta()) -> Sequence[tuple[str, str]]:
    signed = (datetime.now(UTC) + off).strftime("%Y%m%dT%H%M%SZ")
    signature = signature_of(secret or secret_of(name), signed).upper()
    text = f"MQv2-HMAC-SHA1 Credential={name}/x, SignedHeaders=x-mq-date-time"
    return (("x-mq-date-time", signed), ("authorization", f"{text}, Signature={signature}"))


def _client(served: Served, name: str, **given: object) -> Client:
    return Client(served.channel, metadata=_signed(name, **given))  # type: ignore[arg-type]


async def test_each_does_what_it_has_the_right_to(tmp_path: Path) -> None:
    async with guarded(tmp_path / "store", RIGHTS) as served:
        sender, worker, other = (_client(served, name) for name in RIGHTS)
        assert (await worker.route("T")).status.code == v2.TOPIC_NOT_FOUND, "it may not make one"
        assert (await sender.send(sender.message("T", b"x"))).status.code == v2.OK
        assert (await worker.send(worker.message("T"))).status.code == v2.FORBIDDEN
        for stranger in (sender, other):
            assert (await stranger.receive("g", "T"))[0].code == v2.FORBIDDEN
        status, (got,) = await worker.receive("g", "T")
        assert (status.code, got.body) == (v2.OK, b"x")
        refused = await other.acknowledge("g", "T", [handle_of(got)])
        assert refused.status.code == v2.FORBIDDEN
        assert (await worker.acknowledge("g", "T", [handle_of(got)])).status.code == v2.OK
        stream = other.telemetry()
        subscription = v2.Subscription(group=v2.Resource(name="g"))
        told = await other.settle(stream, v2.Settings(subscription=subscription))
        assert told.status.code == v2.FORBIDDEN


async def test_a_wrong_signature_and_none_are_a_status(tmp_path: Path) -> None:
    async with guarded(tmp_path / "store", RIGHTS) as served:
        for client in (
            _client(served, "sender", secret="wrong"),
            _client(served, "sender", off=timedelta(minutes=-20)),
            Client(served.channel),
        ):
            assert (await client.send(client.message("T"))).status.code == v2.UNAUTHORIZED
        # Some sign local time and call it UTC.
        abroad = _client(served, "sender", off=timedelta(hours=8))
        assert (await abroad.send(abroad.message("T"))).status.code == v2.OK
