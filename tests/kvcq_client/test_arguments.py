"""Wrong arguments of public calls: refused by name, and before anything is sent."""

from __future__ import annotations

import asyncio
import inspect
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcq_client import (
    AsyncAccess,
    AsyncClient,
    AsyncConsumer,
    AsyncJobs,
    AsyncMigration,
    AsyncProducer,
    Boundary,
    ConsumerConfig,
    LiteSettings,
    Message,
    MessageType,
    ProducerConfig,
    Queue,
    Retention,
    Right,
    Role,
    SortedFile,
    Start,
    UserLimits,
)
from kvcq_client.calls import Calls
from kvcq_client.format import put_stream_request
from kvcq_client.transport import Connection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

QUEUE = Queue("orders", 1)
#: Something right for each annotation of the public calls.
RIGHT: dict[str, object] = {
    "bool": True,
    "bytes": b"x",
    "float": 1.0,
    "int": 1,
    "str": "x",
    "str | Message": "x",
    "Boundary": Boundary.LOWER,
    "DeliverAt": timedelta(minutes=1),
    "Iterable[str]": ["x"],
    "LiteSettings": LiteSettings("sessions"),
    "datetime | timedelta | Sequence[DeliverAt]": timedelta(minutes=1),
    "str | Sequence[str]": ["x"],
    "Iterable[Message]": [Message("orders", b"x")],
    "Iterable[Queue]": [QUEUE],
    "Iterable[str | Queue]": [QUEUE],
    "Mapping[Queue, int]": {QUEUE: 1},
    "Mapping[Queue, int] | Start | str": {QUEUE: 1},
    "Mapping[str, int | None] | Mapping[str, int] | Iterable[str]": {"orders": 1},
    "Mapping[str, str]": {"a": "b"},
    "Message": Message("orders", b"x"),
    "MessageType": MessageType.FIFO,
    "Retention": Retention(1),
    "Sequence[Message]": [Message("orders", b"x")],
    "Sequence[int]": [1],
    "Sequence[Received | str]": ["x"],
    "Sequence[Right]": [Right(Role.ADMIN, topic="*")],
    "Sequence[SortedFile]": [SortedFile("a", "default")],
    "Sequence[str]": ["x"],
    "Start | str | int": 1,
    "UserLimits": UserLimits(calls=1),
    "Wanted": [QUEUE],
}
WRONG: tuple[object, ...] = (
    *(None, True, 1, 1.5, -1, 1 << 31, 1 << 63, 1 << 70, float("nan"), float("inf")),
    *("text", "", b"text", bytearray(b"x"), "\ud800", "é"),
    *([], [None], [1], ["x"], ["\ud800"], [1 << 40], [b"x"], ["x", 1], [("x", 1)], [("x", "1")]),
    *({}, {"x": "y"}, {"x": 1}, {1: "x"}, {("x", 1): "1"}, {("x", 1): 1 << 70}, {"x": 1 << 40}),
    *(object(), Message, QUEUE, Queue("x", 1 << 40), Message("", b""), Start.LATEST, Retention()),
    *([Message("x", b"", 1 << 40)], [Message("x", None)], [Message(None, b"")]),  # type: ignore[arg-type]
    *(Message("x", b"", True), Message("x", b"", 1.0), Message([], b"")),  # type: ignore[arg-type]
    *(Retention(1 << 70), Retention("x"), [UserLimits()], UserLimits()),  # type: ignore[arg-type]
)
CALL_GROUPS = Calls.__bases__
CLASSES = (*CALL_GROUPS, AsyncJobs, AsyncMigration, AsyncAccess, AsyncConsumer, AsyncProducer)
CALLS = [
    (kind, name, parameter.name)
    for kind in CLASSES
    for name, call in vars(kind).items()
    if inspect.isfunction(call) and not name.startswith("_")
    for parameter in list(inspect.signature(call).parameters.values())[1:]
    if parameter.kind is not parameter.VAR_KEYWORD
]
#: Wait for what a server says, or for time: what they are given is not sent.
WAITING = {(AsyncProducer, "put"), (AsyncProducer, "flush"), (AsyncProducer, "close")}
#: Named by the annotation alone: none of these is right for any of its values.
NEVER = {
    "str": (None, b"text", 1, True, ["x"], "\ud800"),
    "int": ("1", 1.5, True, 1 << 70, [1]),
    "float": ("1", float("nan"), True, [1.0], 1e12, 1 << 2000),
    "bool": (1, "yes", 0.0),
}


class SentError(Exception):
    """The arguments were taken, and went out."""


async def _sent(*_: object, **__: object) -> None:
    raise SentError


@pytest.fixture(autouse=True)
def _nothing_is_sent() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "call", _sent)
        patch.setattr(Connection, "first_contact", lambda _: asyncio.Event().wait())
        patch.setattr(Connection, "stream", lambda *_: _stream())
        yield


async def _stream() -> AsyncIterator[None]:
    await _sent()
    yield


def _annotation(kind: type, name: str, parameter: str) -> str:
    found: str = inspect.signature(getattr(kind, name)).parameters[parameter].annotation
    return found


def _arguments(
    kind: type, name: str, changed: dict[str, object]
) -> tuple[list[Any], dict[str, Any]]:
    """Right ones, but for what is changed."""
    args, named = [], {}
    for one in list(inspect.signature(getattr(kind, name)).parameters.values())[1:]:
        if one.kind is one.VAR_KEYWORD:
            continue
        if one.name in changed:
            value = changed[one.name]
        elif name in ("put", "put_delayed") and one.name == "body":  # without, it takes a Message
            value = b"x"
        elif one.default is not one.empty:
            value = one.default
        else:
            value = RIGHT[one.annotation]
        if one.kind is one.KEYWORD_ONLY:
            named[one.name] = value
        else:
            args.append(value)
    return args, named


async def _call(kind: type, name: str, parameter: str, value: object) -> Exception | None:
    """What came of it; None when the value was taken."""
    async with AsyncClient("127.0.0.1:1") as client:
        targets: dict[type, Any] = {
            **dict.fromkeys(CALL_GROUPS, client),
            AsyncJobs: client.jobs,
            AsyncMigration: client.migration,
            AsyncAccess: client.access,
        }
        target: Any = targets.get(kind)
        if kind is AsyncConsumer:
            target = await client.consumer({QUEUE: 0}, reader_group="g")
        if kind is AsyncProducer:
            target = client.producer(linger_ms=3_600_000, delivery_timeout_s=0.001)
        args, named = _arguments(kind, name, {parameter: value})
        try:
            async with asyncio.timeout(0.02):
                begun = getattr(target, name)(*args, **named)
                if inspect.isasyncgen(begun):
                    await anext(begun)
                elif inspect.isawaitable(begun):
                    await begun
        except (SentError, TimeoutError):
            return None
        except Exception as error:  # noqa: BLE001 - what is raised is what is asked for
            return error
        if kind is AsyncProducer:  # what was taken can leave
            batch = target._core.accumulator._open
            if batch is not None:
                put_stream_request(1, batch.messages, "id", 0)
        return None


@given(st.sampled_from([one for one in CALLS if one[:2] not in WAITING]), st.sampled_from(WRONG))
def test_what_is_wrong_is_refused_by_name(call: tuple[type, str, str], value: object) -> None:
    error = asyncio.run(_call(*call, value))
    if error is not None:
        assert isinstance(error, TypeError | ValueError)
        fields = [call[2], *(Message.__slots__ if "Message" in _annotation(*call) else ())]
        assert re.match(rf"(a )?({'|'.join(fields)})\b", str(error))


@pytest.mark.parametrize("annotation", NEVER)
def test_what_is_never_right_is_refused_everywhere(annotation: str) -> None:
    for call in CALLS:
        alternatives = _annotation(*call).split(" | ")
        if annotation not in alternatives or call[:2] in WAITING or call[1] == "send":
            continue
        for value in NEVER[annotation]:
            if value is None and "None" in alternatives:
                continue
            if type(value) is int and "int" in alternatives:
                continue
            if value == ["x"] and "Sequence[str]" in alternatives:
                continue
            error = asyncio.run(_call(*call, value))
            assert isinstance(error, TypeError | ValueError), (call, value)


def test_what_is_right_is_taken() -> None:
    for kind, name, parameter in CALLS:
        if (kind, name) not in WAITING:
            annotation = _annotation(kind, name, parameter).removesuffix(" | None")
            assert asyncio.run(_call(kind, name, parameter, RIGHT[annotation])) is None


def test_no_message_is_asked_for_by_0_which_means_the_default_in_requests() -> None:
    asked = [one for one in CALLS if one[2] == "max_messages"]
    assert {"pull", "receive"} <= {name for _, name, _ in asked}
    for call in asked:
        error = asyncio.run(_call(*call, 0))
        assert isinstance(error, ValueError), call
        assert str(error) == "max_messages: 0 is below 1"


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"config": "fast"}, "config"),
        ({"config": ConsumerConfig()}, "config"),
        ({"producer_id": 5}, "producer_id"),
        ({"linger": 5}, "linger"),
    ],
)
async def test_settings_of_a_producer_are_refused_by_name(
    settings: dict[str, Any], field: str
) -> None:
    async with AsyncClient("127.0.0.1:1") as client:
        with pytest.raises((TypeError, ValueError), match=field):
            client.producer(**settings)
        with pytest.raises((TypeError, ValueError), match="config"):
            await client.consumer((), ProducerConfig())  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="'group': reader_group=… keeps offsets"):
            await client.consumer("orders", group="g")  # type: ignore[call-arg]
        for queues in (5, [5], None, {"orders": 1}, {QUEUE: "1"}, [b"orders"]):
            with pytest.raises((TypeError, ValueError), match="queues"):
                await client.consumer(queues)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"tls": "ca.pem"}, "tls"),
        ({"credentials": ("user", "secret")}, "credentials"),
        ({"timeout_s": "5"}, "timeout_s"),
        ({"options": 5}, "options"),
    ],
)
async def test_what_a_client_is_made_with_is_refused_by_name(
    wrong: dict[str, Any], field: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=field):
        AsyncClient("127.0.0.1:1", **wrong)


async def test_one_message_that_is_wrong_keeps_no_other_back() -> None:
    async with AsyncClient("127.0.0.1:1") as client:
        producer = client.producer(linger_ms=3_600_000, delivery_timeout_s=0.001)
        await producer.send("orders", b"", queue_id=1, keys=["a"], flag=5, light_queues=["%LMQ%a"])
        for queue_id in (True, 1.0, [1]):  # equal to what was sent, or not to be looked up
            with pytest.raises(TypeError, match="queue_id"):
                await producer.send("orders", b"", queue_id=queue_id)  # type: ignore[arg-type]
        for nothing in ({"keys": None}, {"flag": None}, {"light_queues": None}, {"flag": False}):
            await producer.send("orders", b"", **nothing)
        batch = producer._core.accumulator._open
        assert batch is not None
        assert batch.count == 5
        assert put_stream_request(1, batch.messages, "id", 0)
