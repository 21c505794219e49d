"""The right that each method needs, and on which names of its request, as a table.

A test compares the rows with the descriptors of all services. A method without a row is only for
administrators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from server.access.rights import ResourceKind, Role
from store.held import unpack_transaction_id
from store.light_queue import LMQ_PREFIX, is_light

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kvcq_client.pb.v1 import kvcq_pb2 as pb
    from kvcq_client.pb.v1 import (
        lite_topics_pb2,
        shared_groups_pb2,
        timers_pb2,
        transactions_pb2,
    )
    from server.access.caller import Caller

_TOPIC, _GROUP = ResourceKind.TOPIC, ResourceKind.GROUP
_PUBLISH, _SUBSCRIBE, _ADMIN = Role.PUBLISH, Role.SUBSCRIBE, Role.ADMIN


class Need(NamedTuple):
    """The requirement of one method."""

    #: Raises the error that rejects the call. For a stream of requests it is called for each, at
    #: the point where the service can reject that request.
    check: Callable[[Caller, Any], None]
    #: False: callers need no user.
    user: bool = True
    #: For administrative calls, which are audited: returns the names that the call changes.
    target: Callable[[Any], Sequence[str]] | None = None
    #: Whether the check of a request takes so long that a thread does it; None: never.
    is_laborious: Callable[[Caller, Any], bool] | None = None


# --- checks of requests --------------------------------------------------------------------


def _nothing(caller: Caller, request: object) -> None:
    """For any existing user; checked again, because streams outlive a deletion and a new secret."""
    caller.check_still_there()


def _put(caller: Caller, request: pb.PutRequest | transactions_pb2.BeginTransactionRequest) -> None:
    message = request.message
    caller.check(_PUBLISH, _TOPIC, message.topic)
    if message.light_queues:
        caller.publishes(message.light_queues)


def check_batch(caller: Caller, batch: pb.PutBatchRequest) -> None:
    """Check each name once, however many messages there are."""
    if caller.is_unbound(_PUBLISH, _TOPIC):
        return
    columns = batch.columns
    names = set(columns.topics)
    if columns.light_queues:
        for text in set(columns.light_queues):
            names.update(text.split(","))
    for message in batch.messages:
        names.add(message.topic)
        names.update(message.light_queues)
    # Messages in columns without light queues have an empty name; no topic has that name.
    names.discard("")
    caller.publishes(names)


#: Names that are looked at in the event loop, and characters of columns with names: some
#: milliseconds.
_NAMES_IN_LOOP = 4096
_MESSAGES_IN_LOOP = 1024
_CHARACTERS_IN_LOOP = 32 << 10


def is_laborious_batch(caller: Caller, batch: pb.PutBatchRequest) -> bool:
    """Whether `check_batch` should run in a thread: a batch may have a hundred thousand names."""
    if caller.is_unbound(_PUBLISH, _TOPIC):
        return False
    columns, messages = batch.columns, batch.messages
    names = len(columns.topics) + len(columns.light_queues)
    if names > _NAMES_IN_LOOP or len(messages) > _MESSAGES_IN_LOOP:
        return True
    names += sum(len(message.light_queues) for message in messages)
    return names > _NAMES_IN_LOOP or sum(map(len, columns.light_queues)) > _CHARACTERS_IN_LOOP


def _get_offsets(caller: Caller, request: pb.GetOffsetsRequest) -> None:
    _look_at(caller, request.queues)


def _create(caller: Caller, request: pb.CreateTopicsRequest) -> None:
    caller.check_each(_ADMIN, _TOPIC, (topic.name for topic in request.topics))


def _commit(caller: Caller, request: pb.CommitOffsetsRequest) -> None:
    caller.check(_SUBSCRIBE, _GROUP, request.group)
    _look_at(caller, request.offsets)


def _fetch(caller: Caller, request: pb.FetchOffsetsRequest) -> None:
    caller.check(_SUBSCRIBE, _GROUP, request.group)
    _look_at(caller, request.queues)


def _look_at(caller: Caller, queues: Sequence[pb.Queue] | Sequence[pb.QueuePosition]) -> None:
    if not caller.is_unbound(_SUBSCRIBE, _TOPIC):
        caller.check_each(None, _TOPIC, {queue.topic for queue in queues})


def _receive(caller: Caller, request: shared_groups_pb2.ReceiveRequest) -> None:
    caller.check(_SUBSCRIBE, _GROUP, request.group)
    caller.check(_SUBSCRIBE, _TOPIC, request.topic)


def _put_delayed(caller: Caller, request: timers_pb2.PutDelayedRequest) -> None:
    """At most 1,024 messages, so their names are checked in the loop."""
    if caller.is_unbound(_PUBLISH, _TOPIC):
        return
    names: set[str] = set()
    for one in request.messages:
        names.add(one.message.topic)
        names.update(one.message.light_queues)
    caller.publishes(names)


def _list_delayed(caller: Caller, request: timers_pb2.ListDelayedRequest) -> None:
    if request.topic:
        caller.check(_SUBSCRIBE, _TOPIC, request.topic)
    else:
        caller.check_all(_SUBSCRIBE, _TOPIC, "")


def _decide(caller: Caller, request: transactions_pb2.DecideTransactionRequest) -> None:
    caller.check(_PUBLISH, _TOPIC, unpack_transaction_id(request.transaction_id).topic)


def _reset(
    caller: Caller, request: pb.ResetOffsetsRequest | shared_groups_pb2.ResetGroupRequest
) -> None:
    caller.check(_ADMIN, _GROUP, request.group)
    caller.check(None, _TOPIC, request.topic)


def _own_or_admin(what: str) -> Callable[[Caller, Any], None]:
    """For administrators, and for users on themselves."""

    def check(caller: Caller, request: Any) -> None:  # noqa: ANN401 - several have a user
        caller.check_still_there()
        if not request.user or request.user != caller.name:
            caller.check_admin(what)

    return check


def _send(caller: Caller, request: Any) -> None:  # noqa: ANN401 - of RocketMQ's protocol
    caller.publishes({message.topic.name for message in request.messages})


def _of_group(caller: Caller, request: Any) -> None:  # noqa: ANN401 - as above
    caller.check(_SUBSCRIBE, _GROUP, request.group.name)
    caller.check(_SUBSCRIBE, _TOPIC, request.topic.name)


def _receive_from_queue(caller: Caller, request: Any) -> None:  # noqa: ANN401 - as above
    caller.check(_SUBSCRIBE, _GROUP, request.group.name)
    caller.check(_SUBSCRIBE, _TOPIC, request.message_queue.topic.name)


def _look_at_queue(caller: Caller, request: Any) -> None:  # noqa: ANN401 - as above
    caller.check(_SUBSCRIBE, _TOPIC, request.message_queue.topic.name)


def _resource(role: Role | None) -> Callable[[Caller, Any], None]:
    def check(caller: Caller, request: Any) -> None:  # noqa: ANN401 - as above
        caller.check(role, _TOPIC, request.topic.name)

    return check


# --- rows ----------------------------------------------------------------------------------


def _topic(role: Role | None, field: str) -> Callable[[Caller, Any], None]:
    def check(caller: Caller, request: object) -> None:
        caller.check(role, _TOPIC, getattr(request, field))

    return check


def _group(role: Role) -> Callable[[Caller, Any], None]:
    def check(caller: Caller, request: Any) -> None:  # noqa: ANN401 - several have a group
        caller.check(role, _GROUP, request.group)

    return check


def _admin(what: str) -> Callable[[Caller, Any], None]:
    def check(caller: Caller, request: object) -> None:
        caller.check_admin(what)

    return check


def _fields(*names: str) -> Callable[[Any], Sequence[str]]:
    """The named fields that are set."""

    def target(request: object) -> list[str]:
        return [str(value) for name in names if (value := getattr(request, name))]

    return target


def _no_target(request: object) -> Sequence[str]:
    return ()


def _list_topics(caller: Caller, request: pb.ListTopicsRequest) -> None:
    prefix = request.prefix
    if request.light_queues and not is_light(prefix):
        prefix = LMQ_PREFIX + prefix  # as the service does
    caller.check_all(None, _TOPIC, prefix)


def _list_parents(caller: Caller, request: lite_topics_pb2.ListLiteParentsRequest) -> None:
    caller.check_all(None, _TOPIC, request.prefix)


def _all_groups(caller: Caller, request: object) -> None:
    caller.check_all(_SUBSCRIBE, _GROUP, "")


_MIGRATE = _admin("migrate the store")
_JOBS = _admin("manage jobs")
_USERS = _admin("manage users")
_STEP = Need(_MIGRATE, target=_no_target)

#: The services of kvcq.v1.
_OURS: Mapping[str, Mapping[str, Need]] = {
    "MessageService": {
        "Put": Need(_put),
        "PutBatch": Need(check_batch, is_laborious=is_laborious_batch),
        "PutStream": Need(_nothing),  # each batch is checked and rejected separately: server/puts
        "Pull": Need(_topic(_SUBSCRIBE, "topic")),
        "Subscribe": Need(_nothing),  # each read of a queue is checked: server/reads
        "Query": Need(_topic(_SUBSCRIBE, "topic")),
        "Get": Need(_nothing),  # the service checks the topics of messages that were found
        "Trace": Need(_nothing),  # likewise
        "GetBatch": Need(_nothing),
        "GetProducer": Need(_nothing),  # a producer is its user's own: server/puts
        "GetOffsets": Need(_get_offsets),
        "SearchTime": Need(_topic(_SUBSCRIBE, "topic")),
        "Echo": Need(_nothing),
    },
    # Each call on the stream is checked like a separate call.
    "CallService": {"Calls": Need(_nothing)},
    "TopicService": {
        "CreateTopics": Need(_create, target=lambda request: [one.name for one in request.topics]),
        "UpdateTopic": Need(_topic(_ADMIN, "name"), target=_fields("name")),
        "DeleteTopic": Need(_topic(_ADMIN, "name"), target=_fields("name")),
        "DescribeTopic": Need(_topic(None, "name")),
        "ListTopics": Need(_list_topics),
    },
    "GroupService": {
        "CommitOffsets": Need(_commit),
        "FetchOffsets": Need(_fetch),
        "ResetOffsets": Need(_reset, target=_fields("group", "topic")),
        "ListGroupOffsets": Need(_group(_SUBSCRIBE)),
        "ListGroups": Need(_all_groups),
        "DeleteGroup": Need(_group(_ADMIN), target=_fields("group")),
    },
    "SharedGroupService": {
        "Receive": Need(_receive),
        # A handle belongs to a message that a member of the group received.
        "Acknowledge": Need(_group(_SUBSCRIBE)),
        "ChangeInvisibleTime": Need(_group(_SUBSCRIBE)),
        "GiveBack": Need(_group(_SUBSCRIBE)),
        "CreateGroup": Need(_group(_ADMIN), target=_fields("group")),
        "UpdateGroup": Need(_group(_ADMIN), target=_fields("group")),
        "DescribeGroup": Need(_group(_SUBSCRIBE)),
        "ResetGroup": Need(_reset, target=_fields("group", "topic")),
        "Redrive": Need(_group(_ADMIN), target=_fields("group")),
        "ListDeadLetters": Need(_group(_ADMIN), target=_fields("group")),
        "DeleteDeadLetters": Need(_group(_ADMIN), target=_fields("group")),
    },
    "TimerService": {
        "PutDelayed": Need(_put_delayed),
        "Recall": Need(_topic(_PUBLISH, "topic")),
        "ListDelayed": Need(_list_delayed),
    },
    "TransactionService": {
        "BeginTransaction": Need(_put),
        "DecideTransaction": Need(_decide),
        "ListTransactions": Need(_admin("view transactions")),
        "WatchTransactions": Need(_nothing),  # only gets checks for topics that it may put to
    },
    "LiteTopicService": {
        "CreateLiteParent": Need(_topic(_ADMIN, "topic"), target=_fields("topic")),
        "DescribeLiteParent": Need(_topic(None, "topic")),
        "SyncLiteSubscriptions": Need(_group(_SUBSCRIBE)),
        "ListLiteParents": Need(_list_parents),
        "ListLiteTopics": Need(_topic(None, "topic")),
        "DeleteLiteTopics": Need(_topic(_ADMIN, "topic"), target=_fields("topic")),
    },
    "AdminService": {
        "GetStatistics": Need(_nothing),
        "GetActivity": Need(_admin("view the traffic of all topics")),
        "GetSettings": Need(_admin("view settings")),
        "ReloadSettings": Need(_admin("change settings"), target=_no_target),
    },
    "MigrationService": {
        "PlanMigration": Need(_MIGRATE),
        "StartMigration": _STEP,
        "GetMigrationStatus": Need(_MIGRATE),
        "VerifyMigration": _STEP,
        "ListDifferences": Need(_MIGRATE),
        "Cutover": _STEP,
        "Rollback": _STEP,
        "FinishMigration": _STEP,
        "ResumeMigration": _STEP,
        "IngestFiles": Need(_MIGRATE, target=lambda request: [file.path for file in request.files]),
    },
    "JobService": {
        "StartJob": Need(_JOBS, target=lambda request: [request.WhichOneof("kind") or ""]),
        "GetJob": Need(_JOBS),
        "ListJobs": Need(_JOBS),
        "CancelJob": Need(_JOBS, target=_fields("job_id")),
        "WatchJob": Need(_JOBS),
    },
    "AccessService": {
        "CreateUser": Need(_USERS, target=_fields("user")),
        "DeleteUser": Need(_USERS, target=_fields("user")),
        "ListUsers": Need(_USERS),
        "RotateSecret": Need(
            _own_or_admin("rotate the secret of another user"), target=_fields("user")
        ),
        "SetLimits": Need(_USERS, target=_fields("user")),
        "Grant": Need(_USERS, target=lambda request: _rights_of(request)),
        "Revoke": Need(_USERS, target=lambda request: _rights_of(request)),
        "GetUser": Need(_own_or_admin("view other users")),
        "WhoAmI": Need(_nothing),
    },
}
#: RocketMQ's service. Calls that read or settle messages also need the right on the group, whose
#: members share the messages of the topic.
_ROCKETMQ: Mapping[str, Need] = {
    "QueryRoute": Need(_resource(None)),
    "QueryAssignment": Need(_of_group),
    "Heartbeat": Need(_nothing),
    "SendMessage": Need(_send),
    "ReceiveMessage": Need(_receive_from_queue),
    "AckMessage": Need(_of_group),
    "ChangeInvisibleDuration": Need(_of_group),
    "ForwardMessageToDeadLetterQueue": Need(_of_group),
    "EndTransaction": Need(_resource(_PUBLISH)),
    "RecallMessage": Need(_resource(_PUBLISH)),
    # Settings reveal no topic, and only the group's settings that its members need.
    "Telemetry": Need(_nothing),
    "NotifyClientTermination": Need(_nothing),  # only affects the caller's own clients
    "SyncLiteSubscription": Need(_of_group),
    "PullMessage": Need(_receive_from_queue),
    "UpdateOffset": Need(_receive_from_queue),
    "GetOffset": Need(_receive_from_queue),
    "QueryOffset": Need(_look_at_queue),
}
_OPEN = Need(_nothing, user=False)

NEEDS: Mapping[str, Need] = {
    **{
        f"kvcq.v1.{service}/{method}": need
        for service, rows in _OURS.items()
        for method, need in rows.items()
    },
    **{f"apache.rocketmq.v2.MessagingService/{name}": need for name, need in _ROCKETMQ.items()},
    "grpc.health.v1.Health/Check": _OPEN,
    "grpc.health.v1.Health/List": _OPEN,
    "grpc.health.v1.Health/Watch": _OPEN,
    "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": Need(_nothing),
}
_FOR_ADMINISTRATORS = Need(_admin("call this"), target=_no_target)


def need_of(service: str, method: str) -> Need:
    """The requirement of a method, by its service's full name."""
    return NEEDS.get(f"{service}/{method}", _FOR_ADMINISTRATORS)


def _rights_of(request: Any) -> list[str]:  # noqa: ANN401 - of two kinds
    """The user, and the rights in words."""
    roles = {1: "publish", 2: "subscribe", 3: "admin"}
    return [
        request.user,
        *(
            f"{roles.get(one.role, '?')} {one.WhichOneof('on') or '?'} {one.topic or one.group}"
            for one in request.rights
        ),
    ]
