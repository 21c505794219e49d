"""Converts messages of RocketMQ 5's clients for the store.

| in the message         | in the record                                                        |
|------------------------|----------------------------------------------------------------------|
| message id             | property UNIQ_KEY, which the key index holds like keys               |
| message group          | property __SHARDINGKEY, like the ordering key of kvcq's own clients  |
| tag, keys, properties  | like those of kvcq's own clients                                     |
| body encoding GZIP     | the flag for a compressed body; the bytes do not change              |
| trace context          | property TRACE_CONTEXT                                               |
| priority               | its queue, and property _SYS_MSG_PRIORITY_                           |
| lite topic             | the light queue of that name, and property __LITE_TOPIC              |
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kvcq_client.format import COMPRESSED
from server.errors import ClientStatusError
from server.rocketmq.kinds import check_kind
from server.rocketmq.pb import values_pb2 as v2
from server.rocketmq.times import milliseconds_of
from store.errors import InvalidArgumentError
from store.format import SHARDING_KEY, UNIQ_KEY
from store.lite import check_lite_topic, queue_of
from store.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from server.rocketmq.kinds import Kind
    from server.wire import Budget
    from store.message import Host
    from store.metadata import MessageType

TRACE_CONTEXT = "TRACE_CONTEXT"
PRIORITY = "_SYS_MSG_PRIORITY_"
LITE_TOPIC = "__LITE_TOPIC"
#: System properties, whose values are in fields of their own. A user's property of such a name
#: would be mistaken for the field. Source: RocketMQ 5, MessageConst.
_RESERVED = """
    KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET
    BUYER_ID ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME MSG_REGION
    TRACE_ON UNIQ_KEY EXTEND_UNIQ_INFO MAX_RECONSUME_TIMES CONSUME_START_TIME DUP_INFO
    TRAN_PREPARED_QUEUE_OFFSET INSTANCE_ID CORRELATION_ID REPLY_TO_CLIENT TTL ARRIVE_TIME
    PUSH_REPLY_TIME CLUSTER MSG_TYPE POP_CK POP_CK_OFFSET 1ST_POP_TIME INNER_MULTI_QUEUE_OFFSET
    INNER_MULTI_DISPATCH INNER_NUM INNER_BASE TIMER_DELAY_SEC TIMER_DELAY_MS TIMER_DELIVER_MS
    TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS TIMER_ROLL_TIMES TIMER_OUT_MS TIMER_DEL_UNIQKEY
    TIMER_DELAY_LEVEL __BORNHOST BORN_TIMESTAMP DLQ_ORIGIN_TOPIC DLQ_ORIGIN_MESSAGE_ID __CRC32#
    TRACE_CONTEXT __SHARDINGKEY _SYS_MSG_PRIORITY_ __LITE_TOPIC
"""
RESERVED = frozenset(_RESERVED.split())
#: A message group has fewer bytes than this.
_GROUP_BYTES = 64
_MOST_ID_CHARACTERS = 255
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def messages_in(
    messages: Sequence[v2.Message],
    born_host: Host,
    topic_type: MessageType,
    choose: Callable[[str, str], int],
    of_priority: Callable[[str, int], int],
    budget: Budget,
    *,
    takes_lite: bool = False,
) -> list[Message]:
    """Convert all messages of a request, for a topic of `topic_type`. `choose` returns a queue by
    topic and message group, `of_priority` by topic and priority. `takes_lite`: the topic was
    created for lite topics.

    Raises InvalidArgumentError and ClientStatusError; TooMuchError if the budget is exceeded. Does
    not check what the store checks.
    """
    if not messages:
        raise ClientStatusError(v2.MESSAGE_CORRUPTED, "the request has no messages")
    budget.messages(len(messages), "messages")
    topic = messages[0].topic.name
    if any(each.topic.name != topic for each in messages):
        raise ClientStatusError(
            v2.MESSAGE_CORRUPTED, "the messages of a request must be of one topic"
        )
    found: list[Message] = []
    for message in messages:
        system = message.system_properties
        budget.parts(len(system.keys) + len(message.user_properties), "messages")
        budget.tag(len(system.tag), "messages")
        kind = check_kind(system, topic_type, takes_lite=takes_lite)
        found.append(_message_in(message, kind, born_host, choose, of_priority))
    return found


def times_in(messages: Sequence[v2.Message], types: Sequence[v2.MessageType]) -> list[int]:
    """The delivery time of each message of a request, ms since 1970; empty if none has one.
    `types`: one for each message. Raises ClientStatusError."""
    times = []
    if v2.DELAY not in types:
        return []
    for message, its_type in zip(messages, types, strict=True):
        system = message.system_properties
        if its_type != v2.DELAY:
            continue
        if not system.HasField("delivery_timestamp"):
            raise ClientStatusError(
                v2.ILLEGAL_DELIVERY_TIME, "the message is of type DELAY and has no delivery time"
            )
        times.append(max(0, milliseconds_of(system.delivery_timestamp)))
    if times and len(times) < len(messages):
        raise ClientStatusError(
            v2.MESSAGE_CORRUPTED,
            "all messages of a request must have a delivery time, or none; nothing was stored",
        )
    return times


def _message_in(
    message: v2.Message,
    kind: Kind,
    born_host: Host,
    choose: Callable[[str, str], int],
    of_priority: Callable[[str, int], int],
) -> Message:
    system = message.system_properties
    if not message.body:
        raise ClientStatusError(v2.MESSAGE_BODY_EMPTY, "the body is empty")
    topic, group = message.topic.name, system.message_group
    properties = dict(message.user_properties)
    _check_properties(properties)
    if system.HasField("message_group"):
        _check_group(group)
        properties[SHARDING_KEY] = group
    properties[UNIQ_KEY] = _checked_id(system.message_id)
    lite = ""
    if kind.type == v2.LITE:
        lite = properties[LITE_TOPIC] = system.lite_topic
        check_lite_topic(lite, "lite_topic")
    if system.trace_context:
        properties[TRACE_CONTEXT] = system.trace_context
    if system.HasField("priority"):
        if system.priority < 0:
            raise InvalidArgumentError("priority", f"{system.priority} is below 0")
        properties[PRIORITY] = str(system.priority)
        queue_id = of_priority(topic, system.priority)
    else:
        queue_id = choose(topic, group or lite)
    if system.HasField("tag"):
        _check_tag(system.tag)
    for key in system.keys:
        if _CONTROL.search(key):
            raise InvalidArgumentError("keys", f"{key!r} has a control character")
    return Message(
        topic,
        message.body,
        queue_id,
        system.tag,
        tuple(system.keys),
        (queue_of(topic, lite),) if lite else (),
        properties,
        sys_flag=COMPRESSED if system.body_encoding == v2.GZIP else 0,
        born_time_ms=max(0, milliseconds_of(system.born_timestamp)),
        born_host=born_host,
    )


def _checked_id(message_id: str) -> str:
    if not message_id.strip():
        raise ClientStatusError(v2.ILLEGAL_MESSAGE_ID, "the message id is blank")
    if len(message_id) > _MOST_ID_CHARACTERS or _CONTROL.search(message_id):
        raise ClientStatusError(
            v2.ILLEGAL_MESSAGE_ID,
            f"the message id is not up to {_MOST_ID_CHARACTERS} printable characters",
        )
    return message_id


def _check_tag(tag: str) -> None:
    if not tag.strip() or "|" in tag or _CONTROL.search(tag):
        raise InvalidArgumentError("tag", "is blank, or has | or a control character in it")


def _check_group(group: str) -> None:
    if not group.strip() or len(group.encode()) >= _GROUP_BYTES or _CONTROL.search(group):
        raise ClientStatusError(
            v2.ILLEGAL_MESSAGE_GROUP,
            f"the message group is blank, has {_GROUP_BYTES} bytes or more, or a control character",
        )


def _check_properties(properties: dict[str, str]) -> None:
    for name, value in properties.items():
        if name in RESERVED:
            raise InvalidArgumentError("properties", f"{name!r} is reserved for the system")
        if not name.strip() or _CONTROL.search(name) or _CONTROL.search(value):
            raise InvalidArgumentError(
                "properties", f"{name!r} is blank, or it or its value has a control character"
            )
