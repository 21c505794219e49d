"""Requests made from the descriptors: of the right shape, with values that are not.

A seed says how to make the same again. About 50 us a request, so that the calls are what it costs.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from kvcq_client.pb.v1 import (
    access_pb2,
    jobs_pb2,
    kvcq_pb2,
    lite_topics_pb2,
    migration_pb2,
    shared_groups_pb2,
    timers_pb2,
    transactions_pb2,
)
from server.rocketmq.pb import messaging_pb2

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from google.protobuf.descriptor import Descriptor, MethodDescriptor
    from google.protobuf.message import Message

#: Every method that is served: none can be forgotten.
METHODS: list[MethodDescriptor] = [
    method
    for file in (
        kvcq_pb2.DESCRIPTOR,
        shared_groups_pb2.DESCRIPTOR,
        timers_pb2.DESCRIPTOR,
        lite_topics_pb2.DESCRIPTOR,
        transactions_pb2.DESCRIPTOR,
        migration_pb2.DESCRIPTOR,
        jobs_pb2.DESCRIPTOR,
        access_pb2.DESCRIPTOR,
        messaging_pb2.DESCRIPTOR,
        health_pb2.DESCRIPTOR,
        reflection_pb2.DESCRIPTOR,
    )
    for service in file.services_by_name.values()
    for method in service.methods
]

#: Of a server with users: their rights, on some of the names below. What it is asked for at random
#: makes and removes others, and none of these.
USERS = {
    "writer": ["publish topic t*", "publish topic %LMQ%*"],
    "reader": ["subscribe topic t*", "subscribe group g*"],
    "owner": ["admin topic t0", "admin group g0"],
    "nothing": [],
}
#: What nothing of the fuzz names.
CONTROL_TOPIC, CONTROL_GROUP = "held-apart", "held-keeper"

#: Of deliveries that calls were answered with: somebody may acknowledge them.
HANDLES: deque[str] = deque(maxlen=200)

_TOPICS = [f"t{number}" for number in range(8)]
_LIGHT = ["%LMQ%a", "%LMQ%b/c", "%LMQ%", "%LMQ%$p$l", "%RETRY%g", "%DLQ%g", "CHECKPOINT_TOPIC"]
_NAMES = [*_TOPICS, *_TOPICS, *_TOPICS, *_LIGHT, "SCHEDULE_TOPIC_XXXX", "rmq_sys_x", "none"]
_GROUPS = ["g0", "g1", "g2", "no group", ""]
_TEXTS = [
    *("", " ", "*", "a", "a || b", "||", "a,b", "k", "0@t0", "5@t1", "p1", "default", "index"),
    *("\x01", "\x02", "\0", "\x1b[2J", "é", "\U0001f980", "‮", "/etc/passwd", "../../x"),
    *("7F000001", "0" * 32, "7F00000100001F910000000000000000", "F" * 32, "0" * 56, "1" * 5000),
    *("x" * 127, "x" * 128, "x" * 255, "x" * 256, "x" * 40_000, "kvcq.ready"),
]
#: Made for lite topics.
LITE_PARENT = _TOPICS[-1]
_WORDS = ["a", "b", "k", "word", "p1"]
_WORDY = (
    *("tag", "tags", "keys", "key", "value", "producer_id", "tag_filter"),
    *("lite_topic", "lite_topics", "lite_topic_set"),
)
_CONDITIONS = ["a = 1", "k > 3 AND TAGS = 'a'", "NOT (k IS NULL)", "a >", "(", "k IN ('a')", "'"]
#: Whatever has one of them is refused, or is of another kind.
_RARE = ("delivery_timestamp", "lite_topic", "priority", "message_group", "trace_context")
_ORDINARY = {"MessageType": (1, 2), "FilterType": (1,)}
_SMALL = [0, 0, 0, 1, 1, 2, 3, 5, 7, 31, 100]
_EDGES = [-1, 255, 256, 1000, 1001, 10_000, 10_001, 65_536, (1 << 31) - 1]
_I64_EDGES = [-(1 << 63), -(1 << 31), 1 << 31, 1 << 53, 1 << 62, (1 << 63) - 1]
_MAKERS: dict[int, Callable[[Random, FieldDescriptor], object]] = {}


def request_of(random: Random, message: Descriptor) -> Message:
    """A request of that type."""
    request = GetMessageClass(message)()
    _fill(random, request, 0)
    return request


def mutated(random: Random, data: bytes) -> bytes:
    """The bytes of a request, not quite: cut, flipped, doubled, or something else altogether."""
    kind = random.randrange(5)
    if kind == 0 or not data:
        return random.randbytes(random.choice((0, 1, 2, 10, 300)))
    at = random.randrange(len(data))
    if kind == 1:
        return data[:at]
    if kind == 2:
        return data + data
    if kind == 3:
        return data[:at] + random.randbytes(1) + data[at + 1 :]
    return data[:at] + random.randbytes(3) + data[at:]


def _fill(random: Random, message: Any, depth: int) -> None:  # noqa: ANN401 - any type
    chosen = {oneof.name: random.choice(oneof.fields).name for oneof in message.DESCRIPTOR.oneofs}
    for field in message.DESCRIPTOR.fields:
        inside = field.containing_oneof
        if inside is not None and chosen[inside.name] != field.name:
            continue
        if random.random() < (0.9 if field.name in _RARE else 0.15):
            continue  # left out
        if field.is_repeated:
            _fill_repeated(random, message, field, depth)
        elif field.message_type is not None:
            nested = getattr(message, field.name)
            nested.SetInParent()
            if depth < 4:
                _fill(random, nested, depth + 1)
        else:
            setattr(message, field.name, _value(random, field))


def _fill_repeated(random: Random, message: Any, field: FieldDescriptor, depth: int) -> None:  # noqa: ANN401
    values = getattr(message, field.name)
    size = random.choice((0, 1, 1, 1, 2, 3)) if random.random() < 0.99 else 200
    for _ in range(size):
        inner = field.message_type
        if inner is None:
            values.append(_value(random, field))
        elif inner.GetOptions().map_entry:
            key, value = inner.fields
            values[_value(random, key)] = _value(random, value)
        elif inner.full_name == "kvcq.v1.Call":
            _fill_call(random, values.add())
        elif depth < 4:
            _fill(random, values.add(), depth + 1)


def _fill_call(random: Random, call: Any) -> None:  # noqa: ANN401 - of a stream
    method = random.choice(METHODS)
    request = request_of(random, method.input_type).SerializeToString()
    call.id = random.randrange(100)
    call.method = method.name if random.random() < 0.95 else random.choice(_TEXTS)
    call.request = mutated(random, request) if random.random() < 0.1 else request
    call.timeout_ms = random.choice((0, 0, 1, 50, -1, 1 << 62))
    call.cancel = random.random() < 0.1


def _value(random: Random, field: FieldDescriptor) -> object:
    return _MAKERS[field.cpp_type](random, field)


def _integer(random: Random, field: FieldDescriptor) -> int:
    if field.name == "wait_ms":
        return random.choice((0, 0, 0, 1, -1, 60_000, 60_001))
    if field.name in ("queue_id", "queue_ids", "topic_indexes") and random.random() < 0.8:
        return random.randrange(4)
    if field.name == "queue_count":
        return random.choice((0, 1, 2, 4, -1, 64, 65, (1 << 31) - 1))
    if random.random() < 0.8:
        return random.choice(_SMALL)
    if field.cpp_type == FieldDescriptor.CPPTYPE_INT64 and random.random() < 0.5:
        return random.choice(_I64_EDGES)
    return random.choice(_EDGES)


def _unsigned(random: Random, field: FieldDescriptor) -> int:
    return abs(_integer(random, field))


def _text(random: Random, field: FieldDescriptor) -> str:
    # A topic or a group of RocketMQ's clients: the latter are among the names of topics then.
    if field.name == "name" and random.random() < 0.2:
        return random.choice(_GROUPS)
    if field.name in ("topic", "name", "topics", "pattern", "prefix", "light_queues"):
        names = _LIGHT[:2] if field.name == "light_queues" else _TOPICS
        if random.random() < 0.2:
            names = _NAMES if random.random() < 0.7 else _TEXTS
        return random.choice(names)
    if field.name == "group" and random.random() < 0.9:
        return random.choice(_GROUPS)
    if field.name == "sql_filter":
        return random.choice(_CONDITIONS) if random.random() < 0.3 else ""
    if field.name in ("handles", "acknowledge") and HANDLES and random.random() < 0.8:
        return random.choice(HANDLES)
    if field.name in _WORDY and random.random() < 0.9:
        return random.choice(_WORDS)
    if random.random() < 0.9:
        return random.choice(_TEXTS[:24])
    return random.choice(_TEXTS)


def _enum(random: Random, field: FieldDescriptor) -> int:
    assert field.enum_type is not None
    if field.enum_type.name in _ORDINARY and random.random() < 0.9:
        return random.choice(_ORDINARY[field.enum_type.name])
    numbers = [value.number for value in field.enum_type.values]
    return random.choice([*numbers, *numbers, *numbers, 99, -1])


def _bytes(random: Random, _: FieldDescriptor) -> bytes:
    return random.randbytes(random.choice((0, 0, 1, 16, 16, 24, 100)))


_MAKERS |= {
    FieldDescriptor.CPPTYPE_INT32: _integer,
    FieldDescriptor.CPPTYPE_INT64: _integer,
    FieldDescriptor.CPPTYPE_UINT32: _unsigned,
    FieldDescriptor.CPPTYPE_UINT64: _unsigned,
    FieldDescriptor.CPPTYPE_FLOAT: lambda random, _: random.choice((0.0, 2.0, -1.0, 1e38)),
    FieldDescriptor.CPPTYPE_BOOL: lambda random, _: random.random() < 0.5,
    FieldDescriptor.CPPTYPE_ENUM: _enum,
}


def _string(random: Random, field: FieldDescriptor) -> object:
    make = _bytes if field.type == FieldDescriptor.TYPE_BYTES else _text
    return make(random, field)


_MAKERS[FieldDescriptor.CPPTYPE_STRING] = _string
