"""Converts deliveries for RocketMQ 5's clients: see messages_in for the fields.

The digest is MD5 in upper case: clients format CRC-32 in different ways, and one that does not find
its own format treats the message as damaged.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

from kvcq_client.format import COMPRESSED, BodyError, decompress
from server.rocketmq.messages_in import LITE_TOPIC, PRIORITY, RESERVED, TRACE_CONTEXT
from server.rocketmq.pb import messaging_pb2 as pb
from server.rocketmq.pb import values_pb2 as v2
from server.rocketmq.statuses import OK
from server.rocketmq.times import timestamp_of
from server.wire import host_text, message_id_of
from store.format import OWN_PROPERTIES, SHARDING_KEY, TAGS, UNIQ_KEY, unpack_record
from store.lite import parts_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.groups import Delivery, Received
    from store.message import Message, StoredMessage

_DELIVER_MS = "TIMER_DELIVER_MS"
_IS_TRANSACTION = "TRAN_MSG"
_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"
#: System properties, which have fields of their own. Without the ordering key: RocketMQ's server
#: leaves it among the user's properties, too.
_HIDDEN = (RESERVED | OWN_PROPERTIES.keys()) - {SHARDING_KEY}
#: Bits of a record's flag with the compression type, and their values that these clients
#: decompress.
_KIND_BITS, _ZLIB = 0x700, (0, 0x300)


class EncodedAnswer(NamedTuple):
    """The response to one receive, message by message."""

    message_count: int
    cost_bytes: int  # bytes of the records
    parts: list[bytes]
    lost: Sequence[str]  # lite topics that other clients have taken


def encode_answer(received: Received, namespace: str, now_ms: int) -> EncodedAnswer:
    """Encode the response to a receive. `namespace`: from the request, repeated in each message."""
    deliveries = received.deliveries
    if not deliveries:
        status = v2.Status(code=v2.MESSAGE_NOT_FOUND, message="no new message")
    else:
        status = OK
    parts = [
        pb.ReceiveMessageResponse(status=status),
        *(pb.ReceiveMessageResponse(message=message_out(one, namespace)) for one in deliveries),
        pb.ReceiveMessageResponse(delivery_timestamp=timestamp_of(now_ms)),
    ]
    return EncodedAnswer(
        len(deliveries),
        sum(len(one.record) for one in deliveries),
        [part.SerializeToString() for part in parts],
        received.lost,
    )


def message_out(delivery: Delivery, namespace: str = "") -> v2.Message:
    # Not verified again: the store did when it read the record.
    message = unpack_record(delivery.record, verify=False)
    properties = message.properties
    body, encoding = _body_of(message)
    topic, queue_id, lite = delivery.topic, delivery.queue_id, properties.get(LITE_TOPIC)
    if parts := parts_of(topic):  # a lite topic; the queue id is that in its parent
        (topic, lite), queue_id = parts, message.queue_id
    system = v2.SystemProperties(
        tag=properties.get(TAGS),
        keys=message.keys,
        message_id=properties.get(UNIQ_KEY) or message_id_of(message),
        body_digest=_digest_of(body),
        body_encoding=encoding,
        message_type=v2.LITE if lite else _type_of(properties),
        born_timestamp=timestamp_of(message.born_time_ms),
        born_host=host_text(message.born_host),
        store_timestamp=timestamp_of(message.store_time_ms),
        store_host=host_text(message.store_host),
        receipt_handle=delivery.handle,
        queue_id=queue_id,
        queue_offset=delivery.queue_offset,
        delivery_attempt=delivery.deliveries,
        message_group=properties.get(SHARDING_KEY),
        trace_context=properties.get(TRACE_CONTEXT),
        lite_topic=lite,
    )
    deliver_ms = properties.get(_DELIVER_MS, "")
    if deliver_ms.isascii() and deliver_ms.isdigit() and len(deliver_ms) < 16:
        system.delivery_timestamp.CopyFrom(timestamp_of(int(deliver_ms)))
    priority = properties.get(PRIORITY, "")
    if priority.isascii() and priority.isdigit() and len(priority) < 10:
        system.priority = int(priority)
    if _ORIGIN_TOPIC in properties:
        origin = properties[_ORIGIN_TOPIC]
        parts = parts_of(origin)
        system.dead_letter_queue.topic = parts[0] if parts else origin
        system.dead_letter_queue.message_id = properties.get(_ORIGIN_MESSAGE_ID, "")
    return v2.Message(
        topic=v2.Resource(resource_namespace=namespace, name=topic),
        user_properties={name: value for name, value in properties.items() if name not in _HIDDEN},
        system_properties=system,
        body=body,
    )


def orphan_out(message: Message) -> v2.Message:
    """A message of an undecided transaction, as its producer sent it."""
    properties = dict(message.properties or {})
    body, encoding = _body_of(message)
    system = v2.SystemProperties(
        tag=message.tag or None,
        keys=message.keys,
        message_id=properties.get(UNIQ_KEY),
        body_digest=_digest_of(body),
        body_encoding=encoding,
        message_type=v2.TRANSACTION,
        born_timestamp=timestamp_of(message.born_time_ms),
        born_host=host_text(message.born_host),
        queue_id=message.queue_id,
        trace_context=properties.get(TRACE_CONTEXT),
    )
    return v2.Message(
        topic=v2.Resource(name=message.topic),
        user_properties={name: value for name, value in properties.items() if name not in _HIDDEN},
        system_properties=system,
        body=body,
    )


def _digest_of(body: bytes) -> v2.Digest:
    checksum = hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
    return v2.Digest(type=v2.MD5, checksum=checksum)


def _body_of(message: StoredMessage | Message) -> tuple[bytes, v2.Encoding]:
    flag = message.sys_flag
    if not flag & COMPRESSED:
        return message.body, v2.IDENTITY
    if flag & _KIND_BITS not in _ZLIB:
        try:
            return decompress(message.body, flag), v2.IDENTITY
        except BodyError:
            pass  # sent as stored; decompression fails at the client
    return message.body, v2.GZIP


def _type_of(properties: dict[str, str]) -> v2.MessageType:
    if properties.get(_IS_TRANSACTION) == "true":
        return v2.TRANSACTION
    if _DELIVER_MS in properties:
        return v2.DELAY
    if SHARDING_KEY in properties:
        return v2.FIFO
    return v2.PRIORITY if PRIORITY in properties else v2.NORMAL
