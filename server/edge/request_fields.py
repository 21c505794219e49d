"""Counts the fields of an encoded request before it is decoded.

An empty element of a repeated field takes two bytes on the wire, and a hundred decoded, so a limit
in bytes does not bound memory. Therefore the elements of a large request are counted on the wire,
and requests with too many are rejected undecoded. `COUNT_LIMITS` has the limits by full field name;
a test checks that no repeated field is missing there.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from server.access import MAX_RIGHTS
from server.wire import MAX_ACKNOWLEDGED, MAX_MESSAGES, MAX_QUEUES, MAX_SENT
from store.errors import InvalidArgumentError
from store.format import MAX_PROPERTIES_BYTES
from store.groups import MOST_HANDLES, MOST_LITE_QUOTA
from store.held import MOST_TIMERS
from store.lite import MOST_SYNCED

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

#: Topics of one CreateTopics: they are one write.
MAX_TOPICS = 10_000
#: Queues added, or removed, by one request of a subscription.
MAX_SUBSCRIBED = 100_000
MAX_FILES = 10_000
#: Delays of a group's backoff; the store allows fewer, and says so.
MAX_DELAYS = 1000
#: Dead letters of one call.
MAX_REDRIVEN = 1000
#: Elements of all repeated fields of one request, nested ones included.
MAX_ELEMENTS = 1 << 20
#: Bytes of nested messages that are not looked into, which costs microseconds each: decoded they
#: take some ten times as much.
UNCOUNTED_BYTES = 1 << 20

#: Calls of one message on a stream: they begin in one turn of the loop.
MAX_CALLS = 64

#: Limit for elements of which there are a handful.
_FEW = 256

#: Elements one message of the request may have. Tags, keys and light queues of a message share its
#: properties with separators, so there cannot be more than their bytes allow.
COUNT_LIMITS = {
    "kvcq.v1.Message.keys": MAX_PROPERTIES_BYTES // 2,
    "kvcq.v1.Message.light_queues": MAX_PROPERTIES_BYTES // 2,
    "kvcq.v1.Message.properties": MAX_PROPERTIES_BYTES // 2,
    "kvcq.v1.MessageColumns.topics": MAX_MESSAGES,
    "kvcq.v1.MessageColumns.topic_indexes": MAX_MESSAGES,
    "kvcq.v1.MessageColumns.queue_ids": MAX_MESSAGES,
    "kvcq.v1.MessageColumns.bodies": MAX_MESSAGES,
    "kvcq.v1.MessageColumns.tags": MAX_MESSAGES,
    "kvcq.v1.MessageColumns.keys": MAX_MESSAGES,
    "kvcq.v1.MessageColumns.light_queues": MAX_MESSAGES,
    "kvcq.v1.MessageColumns.flags": MAX_MESSAGES,
    "kvcq.v1.MessageColumns.born_times_ms": MAX_MESSAGES,
    "kvcq.v1.MessageColumns.ordering_keys": MAX_MESSAGES,
    "kvcq.v1.PutBatchRequest.messages": MAX_MESSAGES,
    "kvcq.v1.CallsRequest.calls": MAX_CALLS,
    "kvcq.v1.SubscribeRequest.add": MAX_SUBSCRIBED,
    "kvcq.v1.SubscribeRequest.remove": MAX_SUBSCRIBED,
    "kvcq.v1.GetOffsetsRequest.queues": MAX_QUEUES,
    "kvcq.v1.CreateTopicsRequest.topics": MAX_TOPICS,
    "kvcq.v1.CommitOffsetsRequest.offsets": MAX_QUEUES,
    "kvcq.v1.FetchOffsetsRequest.queues": MAX_QUEUES,
    "kvcq.v1.ResetOffsetsRequest.queue_ids": MAX_QUEUES,
    "kvcq.v1.ReceiveRequest.acknowledge": MAX_ACKNOWLEDGED,
    "kvcq.v1.AcknowledgeRequest.handles": MOST_HANDLES,
    "kvcq.v1.ChangeInvisibleTimeRequest.handles": MOST_HANDLES,
    "kvcq.v1.GiveBackRequest.handles": MOST_HANDLES,
    "kvcq.v1.Backoff.delays_ms": MAX_DELAYS,
    "kvcq.v1.ResetGroupRequest.queue_ids": MAX_QUEUES,
    "kvcq.v1.RedriveRequest.offsets": MAX_REDRIVEN,
    "kvcq.v1.DeleteDeadLettersRequest.offsets": MAX_REDRIVEN,
    "kvcq.v1.PutDelayedRequest.messages": MOST_TIMERS,
    "kvcq.v1.RecallRequest.handles": MOST_TIMERS,
    "kvcq.v1.SyncLiteSubscriptionsRequest.lite_topics": MOST_LITE_QUOTA,
    "kvcq.v1.DeleteLiteTopicsRequest.lite_topics": MOST_SYNCED,
    "kvcq.v1.ChangeRightsRequest.rights": MAX_RIGHTS,
    "kvcq.v1.IngestFilesRequest.files": MAX_FILES,
} | {
    f"apache.rocketmq.v2.{field}": limit
    for field, limit in {
        "SendMessageRequest.messages": MAX_SENT,
        "Message.user_properties": MAX_PROPERTIES_BYTES // 2,
        "SystemProperties.keys": MAX_PROPERTIES_BYTES // 2,
        "AckMessageRequest.entries": MOST_HANDLES,
        "Endpoints.addresses": _FEW,
        "MessageQueue.accept_message_types": _FEW,
        "CustomizedBackoff.next": _FEW,
        "Settings.client_properties": _FEW,
        "Publishing.topics": MAX_MESSAGES,
        "Subscription.subscriptions": MAX_MESSAGES,
        "SyncLiteSubscriptionRequest.lite_topic_set": MOST_LITE_QUOTA,
    }.items()
}

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
#: Bytes of a packed column that end no number.
_NOT_LAST = bytes(range(0x80, 0x100))


class _Rule(NamedTuple):
    name: str
    limit: int
    is_packed: bool
    nested: dict[int, _Rule]


Plan = dict[int, _Rule]


@cache
def plan_of(message: Descriptor) -> Plan:
    """What to count in a request of that type. KeyError for a field without a limit."""
    plan: Plan = {}
    for field in message.fields:
        nested: Plan = {}
        inner = field.message_type
        if inner is not None and not inner.GetOptions().map_entry:
            nested = plan_of(inner)
        if field.is_repeated:
            limit = COUNT_LIMITS[field.full_name]
            plan[field.number] = _Rule(field.name, limit, field.is_packed, nested)
        elif nested:
            # A field that is sent twice is merged, and its elements would not be counted.
            plan[field.number] = _Rule(field.name, 1, is_packed=False, nested=nested)
    return plan


def check_counts(data: bytes, plan: Plan) -> None:
    """Raises InvalidArgumentError, naming the field that has too many elements.

    Ignores invalid protobuf, which the decoder rejects. Takes up to 1 us a field. `data` may be a
    memoryview.
    """
    try:
        _Count(data).walk(0, len(data), plan, "")
    except IndexError:
        return  # it ends within a field


class _Count:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._left = MAX_ELEMENTS
        self._uncounted_bytes = UNCOUNTED_BYTES

    def walk(self, at: int, end: int, plan: Plan, path: str) -> None:
        data = self._data
        counts: dict[int, int] = {}
        while at < end:
            tag = data[at]
            at += 1
            if tag & 0x80:
                tag, at = _varint(data, tag, at)
            kind, number = tag & 7, tag >> 3
            size = 0
            if kind == _BYTES:
                size = data[at]
                at += 1
                if size & 0x80:
                    size, at = _varint(data, size, at)
            elif kind == _VARINT:
                while data[at] & 0x80:
                    at += 1
                at += 1
            elif kind == _FIXED64:
                at += 8
            elif kind == _FIXED32:
                at += 4
            # Groups are no part of our requests: their marks are passed over, their fields counted.
            rule = plan.get(number)
            if rule is not None:
                more = 1
                if rule.is_packed and kind == _BYTES:
                    more = len(bytes(data[at : at + size]).translate(None, _NOT_LAST))
                counts[number] = count = counts.get(number, 0) + more
                self._left -= more
                if count > rule.limit:
                    raise InvalidArgumentError(path + rule.name, f"more than {rule.limit}")
                if self._left < 0:
                    raise InvalidArgumentError(
                        path + rule.name, f"more than {MAX_ELEMENTS} elements in one request"
                    )
                if rule.nested and kind == _BYTES:
                    if size <= self._uncounted_bytes and rule.limit > 1:
                        self._uncounted_bytes -= size
                        at += size
                        continue
                    index = f"[{count - 1}]" if rule.limit > 1 else ""
                    self.walk(at, min(at + size, end), rule.nested, f"{path}{rule.name}{index}.")
            at += size


def _varint(data: bytes, first: int, at: int) -> tuple[int, int]:
    """The number whose first byte was read, and the position after it."""
    value, shift = first & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, at
        shift += 7
