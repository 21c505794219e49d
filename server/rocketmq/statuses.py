"""Converts outcomes to statuses of RocketMQ 5's clients.

They read a Status from the response. They treat a gRPC error as a broken connection, and retry
forever. So every error of a call is sent as a Status.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

from server.rocketmq.pb import messaging_pb2
from server.rocketmq.pb import values_pb2 as v2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from server.wire import Refusal

OK = v2.Status(code=v2.OK, message="OK")

#: Code by the reason of the refusal that kvcq's own clients get.
_BY_REASON = {
    "UNAUTHENTICATED": v2.UNAUTHORIZED,
    "PERMISSION_DENIED": v2.FORBIDDEN,
    "UNKNOWN_TOPIC": v2.TOPIC_NOT_FOUND,
    # Clients name no queues: the topic was replaced by one with fewer after one was chosen.
    "UNKNOWN_QUEUE": v2.TOPIC_NOT_FOUND,
    "UNKNOWN_GROUP": v2.CONSUMER_GROUP_NOT_FOUND,
    "GROUP_KIND": v2.ILLEGAL_CONSUMER_GROUP,
    "LITE_GROUP": v2.ILLEGAL_CONSUMER_GROUP,
    "LITE_QUOTA": v2.LITE_SUBSCRIPTION_QUOTA_EXCEEDED,
    "TOO_MANY_GROUPS": v2.TOO_MANY_REQUESTS,
    "MEMORY_FULL": v2.TOO_MANY_REQUESTS,
    "REQUEST_LATE": v2.TOO_MANY_REQUESTS,
    "TOO_MANY_CALLS": v2.TOO_MANY_REQUESTS,
    "USER_LIMIT": v2.TOO_MANY_REQUESTS,
    "FLUSH_DISK_TIMEOUT": v2.MASTER_PERSISTENCE_TIMEOUT,
}
#: Code by the last part of the field that an INVALID_ARGUMENT names.
_BY_FIELD = {
    "topic": v2.ILLEGAL_TOPIC,
    "name": v2.ILLEGAL_TOPIC,
    "group": v2.ILLEGAL_CONSUMER_GROUP,
    "tag": v2.ILLEGAL_MESSAGE_TAG,
    "keys": v2.ILLEGAL_MESSAGE_KEY,
    "ordering_key": v2.ILLEGAL_MESSAGE_GROUP,
    "properties": v2.ILLEGAL_MESSAGE_PROPERTY_KEY,
    "body": v2.MESSAGE_BODY_TOO_LARGE,
    "tag_filter": v2.ILLEGAL_FILTER_EXPRESSION,
    "sql_filter": v2.ILLEGAL_FILTER_EXPRESSION,
    "invisible_ms": v2.ILLEGAL_INVISIBLE_TIME,
    "deliver_at": v2.ILLEGAL_DELIVERY_TIME,
    "delay_ms": v2.ILLEGAL_INVISIBLE_TIME,
    "handles": v2.INVALID_RECEIPT_HANDLE,
    "lite_topic": v2.ILLEGAL_LITE_TOPIC,
    "lite_topics": v2.ILLEGAL_LITE_TOPIC,
    "lite_topic_set": v2.LITE_SUBSCRIPTION_QUOTA_EXCEEDED,  # more names than any quota allows
    "offset": v2.ILLEGAL_OFFSET,
    "from_end": v2.ILLEGAL_OFFSET,
    "from_time": v2.ILLEGAL_OFFSET,
}
#: The last part of a field's name, such as `tag` of messages[0].tag.
_LAST_PART = re.compile(r"(?:^|\.)(\w+)(?:\[[^\]]*\])*$")


def code_of(refusal: Refusal) -> v2.Code:
    """The code for an error."""
    if refusal.reason == "CLIENT_STATUS":
        return cast("v2.Code", int(refusal.metadata["status"]))
    if refusal.reason in _BY_REASON:
        return _BY_REASON[refusal.reason]
    if refusal.reason == "INVALID_ARGUMENT":
        part = _LAST_PART.search(refusal.metadata.get("field", ""))
        return _BY_FIELD.get(part[1] if part else "", v2.BAD_REQUEST)
    return v2.INTERNAL_SERVER_ERROR


def refuse(refusal: Refusal) -> bytes:
    """The response that rejects a call, for any method: all have the status in the same field."""
    status = v2.Status(code=code_of(refusal), message=refusal.message)
    return messaging_pb2.HeartbeatResponse(status=status).SerializeToString()


def common(statuses: Iterable[v2.Status]) -> v2.Status:
    """The status of a response with several results: theirs if all are equal, otherwise
    MULTIPLE_RESULTS."""
    first, *others = statuses
    if all(each.code == first.code for each in others):
        return first
    return v2.Status(code=v2.MULTIPLE_RESULTS, message="outcomes differ, see each entry")
