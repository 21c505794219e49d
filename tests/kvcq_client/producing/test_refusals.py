"""What one refusal costs: the messages that the server names, or the batch, and nothing else.

Every error that the server knows is planted before and behind the append of one batch.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from kvcq_client import (
    AsyncClient,
    InvalidArgumentError,
    KvcqError,
    Message,
    PermissionDeniedError,
    Queue,
    ResourceExhaustedError,
    UnauthenticatedError,
)
from kvcq_client.transport.statuses import is_retried, make_error
from server.edge.decoder import Decoder
from server.wire.status import STATUS_BY_ERROR
from store.errors import InvalidArgumentError as ServerInvalidArgumentError
from tests.support.users import client_of, guarded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence
    from pathlib import Path

    from kvcq_client import Sending
    from store.message import Appended
    from store.message import Message as StoreMessage
    from tests.support.serving import Served

#: These belong to the table of numbers, and are tested with it.
_OF_NUMBERS = ("OUT_OF_SEQUENCE", "NUMBER_REUSED", "NUMBER_PASSED")
_ROWS = {
    kind.__name__: kind for kind, row in STATUS_BY_ERROR.items() if row.reason not in _OF_NUMBERS
}
#: What the store may raise when it has written the messages. A flush that takes too long is another
#: test's: the server itself knows the batch then.
_BEHIND = ("StoreFailedError", "FlushError", "EngineFailedError", "EngineDamagedError")


async def _error(sending: Sending) -> KvcqError | None:
    try:
        await sending
    except KvcqError as error:
        return error
    return None


async def _bodies(client: AsyncClient, topic: str = "orders") -> list[bytes]:
    async with await client.consumer({Queue(topic, 0): 0}) as consumer:
        return [message.body async for message in consumer.to_end()]


@pytest.mark.parametrize(
    ("names", "is_appended"), [(_ROWS, False), (_BEHIND, True)], ids=["before", "behind"]
)
async def test_one_refused_batch_of_nine_fails_no_other(
    client: AsyncClient, served: Served, names: Iterable[str], is_appended: bool
) -> None:
    for name in names:
        with pytest.MonkeyPatch.context() as patch:
            await _refuse_one_of_nine(client, served, patch, name, is_appended=is_appended)


async def _refuse_one_of_nine(
    client: AsyncClient,
    served: Served,
    patch: pytest.MonkeyPatch,
    name: str,
    *,
    is_appended: bool,
) -> None:
    """Eight are stored once, in order; the ninth is stored once, or its caller has the error."""
    row = STATUS_BY_ERROR[_ROWS[name]]
    error = _ROWS[name].__new__(_ROWS[name])
    for attribute in row.attributes:
        setattr(error, attribute, 1 if "offset" in attribute else "x")
    Exception.__init__(error, "planted")
    append = served.store.append
    planted = [error]

    def failing(messages: Sequence[StoreMessage], **how: Any) -> Appended:  # noqa: ANN401
        if messages[0][1] != b"4" or not planted:
            return append(messages, **how)
        if is_appended:
            append(messages, **how)
        raise planted.pop()

    patch.setattr(served.store, "append", failing)
    async with client.producer(batch_messages=1, linger_ms=0) as producer:
        sendings = [await producer.send(name, b"%d" % at, queue_id=0) for at in range(9)]
        await producer.flush(30)
    errors = {at: told for at in range(9) if (told := await _error(sendings[at])) is not None}
    assert set(errors) <= {4}, name
    counted = Counter(await _bodies(client, name))
    assert all(counted[b"%d" % at] == 1 for at in range(9) if at != 4), name
    if not errors:
        assert is_retried(make_error(row.code.name, "planted", row.reason, {})), name
    assert counted[b"4"] == (1 if is_appended or not errors else 0), name


@pytest.fixture
async def allowed(tmp_path: Path) -> AsyncIterator[AsyncClient]:
    users = {"bob": ["publish topic ok*", "subscribe topic ok*", "publish topic %LMQ%ok"]}
    async with guarded(tmp_path, users) as served:
        async with client_of(served, "ops") as ops:
            await ops.create_topics({"ok": 1, "deny": 1})
        async with client_of(served, "bob") as bob:
            yield bob


@pytest.mark.parametrize("batch_messages", [1, 20, 1000])
async def test_a_message_to_a_forbidden_topic_fails_alone(
    allowed: AsyncClient, batch_messages: int
) -> None:
    async with allowed.producer(batch_messages=batch_messages) as producer:
        await (await producer.send("ok", b"first"))
        sendings = []
        for at in range(1500):
            sendings.append(await producer.send("ok", b"%d" % at))
            if at in (300, 301, 900):
                sendings.append(await producer.send("deny", b"no"))
        await producer.flush(30)
    outcomes = Counter([type(await _error(sending)) for sending in sendings])
    assert outcomes == {type(None): 1500, PermissionDeniedError: 3}
    assert await _bodies(allowed, "ok") == [b"first", *(b"%d" % at for at in range(1500))]


async def test_a_message_to_a_forbidden_light_queue_fails_alone(allowed: AsyncClient) -> None:
    async with allowed.producer() as producer:
        good = [await producer.send("ok", b"", light_queues=["%LMQ%ok"]) for _ in range(5)]
        bad = await producer.send("ok", b"", light_queues=["%LMQ%ok", "%LMQ%no"])
        long = await producer.send("deny" * 200, b"")
        more = [await producer.send("ok", b"") for _ in range(5)]
        await producer.flush(30)
    assert isinstance(await _error(bad), PermissionDeniedError)
    assert isinstance(await _error(long), PermissionDeniedError)
    assert [await _error(one) for one in good + more] == [None] * 10


async def test_puts_at_once_to_a_forbidden_topic_fail_alone(allowed: AsyncClient) -> None:
    names = ["ok" if at % 8 else "deny" for at in range(64)]
    found = await asyncio.gather(
        *(allowed.put(Message(name, b"")) for name in names), return_exceptions=True
    )
    kinds = Counter(type(one) for one, name in zip(found, names, strict=True) if name == "deny")
    assert kinds == {PermissionDeniedError: 8}
    assert len(await _bodies(allowed, "ok")) == 56


@pytest.mark.parametrize("window", [1, 16])
async def test_a_request_that_is_too_large_for_grpc_fails_alone(
    client: AsyncClient, window: int
) -> None:
    """gRPC ends the stream, and neither names the request nor says what the server took."""
    async with client.producer(batch_messages=1, linger_ms=0, window=window) as producer:
        await (await producer.send("orders", b"0", queue_id=0))
        sendings = [await producer.send("orders", b"%d" % at, queue_id=0) for at in range(1, 10)]
        large = await producer.send("orders", bytes(17 << 20), queue_id=0)
        sendings += [await producer.send("orders", b"%d" % at, queue_id=0) for at in range(10, 20)]
        await producer.flush(30)
        error = await _error(large)
        assert isinstance(error, ResourceExhaustedError)
        assert "larger than max" in str(error)
        assert [await _error(one) for one in sendings] == [None] * 19
        assert "." not in producer.producer_id
    assert await _bodies(client) == [b"%d" % at for at in range(20)]


async def test_a_request_that_the_server_refuses_to_read_fails_alone(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends the stream, after the answers of all that it read before."""
    decode = Decoder._decode

    def refusing(decoder: Decoder, data: bytes) -> Any:  # noqa: ANN401 - a message
        if b"unreadable" in data:
            raise ServerInvalidArgumentError("request", "planted")
        return decode(decoder, data)

    monkeypatch.setattr(Decoder, "_decode", refusing)
    async with client.producer(batch_messages=1, linger_ms=0) as producer:
        bodies = [b"unreadable" if at == 9 else b"%d" % at for at in range(20)]
        sendings = [await producer.send("orders", body, queue_id=0) for body in bodies]
        await producer.flush(30)
        errors = {at: error for at in range(20) if (error := await _error(sendings[at]))}
        assert {at: type(error) for at, error in errors.items()} == {9: InvalidArgumentError}
        assert "." not in producer.producer_id
    assert await _bodies(client) == bodies[:9] + bodies[10:]


async def test_a_user_that_is_gone_fails_all_that_waits_at_once(tmp_path: Path) -> None:
    async with (
        guarded(tmp_path, {"bob": ["publish topic ok"]}) as served,
        client_of(served, "ops") as ops,
        client_of(served, "bob") as bob,
        bob.producer(batch_messages=1, linger_ms=0) as producer,
    ):
        await (await producer.send("ok", b"first"))
        await ops.access.delete_user("bob")
        sendings = [await producer.send("ok", b"late") for _ in range(200)]
        await producer.flush(10)
        kinds = Counter([type(await _error(one)) for one in sendings])
        assert kinds == {UnauthenticatedError: 200}
