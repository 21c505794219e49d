"""Limits per method: maximum size of a request, and how its calls are counted.

Every served method has a row; a test compares the rows with the descriptors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from server.edge.call_gate import CallKind, Places
from store.config import StoreConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from google.protobuf.descriptor import MethodDescriptor

    from server.config import ServerConfig

#: A request that only names things: the longest are a key, a tag filter, or a cursor.
_NAMES = 128 << 10
#: The longest handles that one call may name.
_HANDLES = 640 << 10
#: Rows of up to 10,000 queues, rules or files.
_ROWS = 4 << 20
#: Calls that share a stream, decoded in the loop.
_CALLS = 320 << 10
#: Enough for 100,000 topics with the longest names, and for values that are returned unchanged.
_MANY = 16 << 20
#: Limits for health calls, which need no user: probes answer within milliseconds, and a load
#: balancer watches over a connection each. Twice as many as may watch, so that there is always room
#: for checks.
OPEN_PLACES = Places(of_peer=64, in_all=768)
#: Limit of `max_receive_bytes`, or the longest body with all its fields.
_MESSAGES = -1
_MESSAGE = -2
_AROUND_BODY = 1 << 20


class RequestLimit(NamedTuple):
    """Limits of one method."""

    request_bytes: int
    kind: CallKind = CallKind.SHORT
    #: Its response may be above 64 KiB: it waits while too many of those wait to be sent. Pulls and
    #: subscriptions look for themselves, at each read.
    answers_large: bool = False
    #: It may be so large that it waits for its turn to be read.
    waits_to_be_read: bool = False


#: Methods of the services of kvcq.v1, by service and by the limits that they share.
_OURS = {
    "MessageService": {
        RequestLimit(_MESSAGE): "Put",
        RequestLimit(_MESSAGES, waits_to_be_read=True): "PutBatch",
        RequestLimit(_MESSAGES, CallKind.STREAM): "PutStream Subscribe",
        RequestLimit(_NAMES, CallKind.PULL): "Pull",
        RequestLimit(_NAMES, answers_large=True): "Query GetBatch Trace",
        RequestLimit(_NAMES): "Get GetProducer SearchTime",
        RequestLimit(_ROWS, answers_large=True): "GetOffsets",
        RequestLimit(_MANY, answers_large=True, waits_to_be_read=True): "Echo",
    },
    "CallService": {RequestLimit(_CALLS, CallKind.STREAM): "Calls"},
    "TopicService": {
        RequestLimit(_MANY, answers_large=True, waits_to_be_read=True): "CreateTopics",
        RequestLimit(_NAMES): "DeleteTopic UpdateTopic",
        RequestLimit(_NAMES, answers_large=True): "DescribeTopic ListTopics",
    },
    "GroupService": {
        RequestLimit(_ROWS): "CommitOffsets",
        RequestLimit(_ROWS, answers_large=True): "FetchOffsets",
        RequestLimit(_NAMES, answers_large=True): "ResetOffsets ListGroupOffsets ListGroups",
        RequestLimit(_NAMES): "DeleteGroup",
    },
    "SharedGroupService": {
        RequestLimit(_NAMES, CallKind.PULL): "Receive",
        RequestLimit(_HANDLES): "Acknowledge ChangeInvisibleTime GiveBack",
        RequestLimit(_NAMES): "CreateGroup UpdateGroup Redrive DeleteDeadLetters",
        RequestLimit(_NAMES, answers_large=True): "DescribeGroup ResetGroup ListDeadLetters",
    },
    "TimerService": {
        RequestLimit(_MESSAGES, waits_to_be_read=True): "PutDelayed",
        RequestLimit(_HANDLES): "Recall",
        RequestLimit(_NAMES, answers_large=True): "ListDelayed",
    },
    "TransactionService": {
        RequestLimit(_MESSAGE): "BeginTransaction",
        RequestLimit(_NAMES): "DecideTransaction",
        RequestLimit(_NAMES, answers_large=True): "ListTransactions",
        RequestLimit(_NAMES, CallKind.STREAM): "WatchTransactions",
    },
    "LiteTopicService": {
        RequestLimit(_ROWS): "SyncLiteSubscriptions DeleteLiteTopics",
        RequestLimit(_NAMES): "CreateLiteParent DescribeLiteParent",
        RequestLimit(_NAMES, answers_large=True): "ListLiteParents ListLiteTopics",
    },
    "AdminService": {
        RequestLimit(_NAMES): "GetStatistics GetSettings ReloadSettings",
        RequestLimit(_NAMES, answers_large=True): "GetActivity",
    },
    "MigrationService": {
        RequestLimit(_NAMES, answers_large=True): "PlanMigration ListDifferences",
        RequestLimit(_NAMES): (
            "StartMigration GetMigrationStatus VerifyMigration Cutover Rollback FinishMigration "
            "ResumeMigration"
        ),
        RequestLimit(_ROWS): "IngestFiles",
    },
    "JobService": {
        RequestLimit(_NAMES): "StartJob GetJob CancelJob",
        RequestLimit(_NAMES, answers_large=True): "ListJobs",
        RequestLimit(_NAMES, CallKind.STREAM): "WatchJob",
    },
    "AccessService": {
        RequestLimit(_NAMES): "CreateUser DeleteUser RotateSecret SetLimits",
        RequestLimit(_NAMES, answers_large=True): "ListUsers GetUser WhoAmI",
        RequestLimit(_ROWS, answers_large=True): "Grant Revoke",
    },
}
#: Methods of RocketMQ's service. A telemetry stream is open as long as its client.
_ROCKETMQ = {
    RequestLimit(_MESSAGES, waits_to_be_read=True): "SendMessage",
    RequestLimit(_NAMES, answers_large=True): "QueryRoute QueryAssignment",
    RequestLimit(_NAMES, CallKind.PULL): "ReceiveMessage PullMessage",
    RequestLimit(_NAMES, CallKind.TELEMETRY): "Telemetry",
    RequestLimit(_ROWS): "AckMessage SyncLiteSubscription",
    RequestLimit(_NAMES): (
        "Heartbeat NotifyClientTermination ForwardMessageToDeadLetterQueue UpdateOffset GetOffset "
        "QueryOffset EndTransaction ChangeInvisibleDuration RecallMessage"
    ),
}
#: By the path of the method, since methods of two services may have the same name.
_LIMITS: Mapping[str, RequestLimit] = (
    {
        f"kvcq.v1.{service}/{name}": limit
        for service, rows in _OURS.items()
        for limit, names in rows.items()
        for name in names.split()
    }
    | {
        "grpc.health.v1.Health/Check": RequestLimit(_NAMES, CallKind.OPEN),
        "grpc.health.v1.Health/List": RequestLimit(_NAMES, CallKind.OPEN),
        "grpc.health.v1.Health/Watch": RequestLimit(_NAMES, CallKind.OPEN),
        "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": RequestLimit(
            _NAMES, CallKind.STREAM
        ),
    }
    | {
        f"apache.rocketmq.v2.MessagingService/{name}": limit
        for limit, names in _ROCKETMQ.items()
        for name in names.split()
    }
)


#: Methods of these packages have names that are all different.
_NAMED_SHORT = ("kvcq.v1.", "grpc.")


def path_of(method: MethodDescriptor) -> str:
    """Service and method, such as `kvcq.v1.MessageService/Put`, which identifies a method."""
    return f"{method.containing_service.full_name}/{method.name}"


def shown_name(method: MethodDescriptor) -> str:
    """The name in logs, metrics and the audit: `Put`; with its service for those that are not
    ours."""
    path = path_of(method)
    return method.name if path.startswith(_NAMED_SHORT) else path


def request_limit(method: MethodDescriptor, config: ServerConfig) -> RequestLimit:
    """The row of the method. Raises KeyError if there is none."""
    limit = _LIMITS[path_of(method)]
    if limit.request_bytes == _MESSAGES:
        return limit._replace(request_bytes=config.max_receive_bytes)
    if limit.request_bytes == _MESSAGE:
        body = config.store.get("max_body_bytes", StoreConfig.max_body_bytes)
        return limit._replace(request_bytes=min(body + _AROUND_BODY, config.max_receive_bytes))
    return limit


#: Number of calls in progress, by kind: of one connection, and of all together. Each takes memory
#: until it ends (a parked pull some KiB, a stream tens of KiB), and all of them together stay
#: within a gigabyte.
PLACES: dict[CallKind, Places] = {
    CallKind.SHORT: Places(of_peer=4096, in_all=8192),
    CallKind.PULL: Places(of_peer=8192, in_all=12_288),
    CallKind.STREAM: Places(of_peer=512, in_all=2048),
    CallKind.TELEMETRY: Places(of_peer=4096, in_all=16_384),
    CallKind.OPEN: OPEN_PLACES,
}
