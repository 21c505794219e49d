"""What each method takes: how many bytes a request may have, and how its calls are counted.

Every method that is served stands in a row; a test compares the rows with the descriptors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from server.edge.call_gate import CallKind, Places
from store.config import StoreConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from server.config import ServerConfig

#: A request that only names things: the longest are a key, a tag filter, or a cursor.
_NAMES = 128 << 10
#: Rows of up to 10,000 queues, rules or files.
_ROWS = 4 << 20
#: Calls that share a stream, decoded in the loop.
_CALLS = 320 << 10
#: 100,000 topics with their longest names; what is to come back as it is.
_MANY = 16 << 20
#: Of health, which anybody may ask for: probes answer within milliseconds, and a balancer watches
#: over a connection each. Twice as many as may watch, so that there is always room to check.
OPEN_PLACES = Places(of_peer=64, in_all=768)
#: What `max_receive_bytes` allows; and the longest body with all that belongs to it.
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


#: By what there is to say of them, the methods; those of health and reflection too.
_METHODS = {
    RequestLimit(_MESSAGE): "Put",
    RequestLimit(_MESSAGES, waits_to_be_read=True): "PutBatch",
    RequestLimit(_MESSAGES, CallKind.STREAM): "PutStream Subscribe",
    RequestLimit(_NAMES, CallKind.PULL): "Pull",
    RequestLimit(_CALLS, CallKind.STREAM): "Calls",
    RequestLimit(_NAMES, answers_large=True): (
        "Query GetBatch DescribeTopic ListTopics ResetOffsets ListGroupOffsets ListGroups "
        "GetActivity PlanMigration ListDifferences ListJobs ListUsers GetUser WhoAmI"
    ),
    RequestLimit(_NAMES): (
        "Get GetProducer SearchTime DeleteTopic UpdateTopic DeleteGroup GetStatistics GetSettings "
        "ReloadSettings GetMigrationStatus VerifyMigration Cutover Rollback FinishMigration "
        "StartMigration ResumeMigration StartJob GetJob CancelJob CreateUser "
        "DeleteUser RotateSecret SetLimits"
    ),
    RequestLimit(_ROWS, answers_large=True): "GetOffsets FetchOffsets Grant Revoke",
    RequestLimit(_MANY, answers_large=True, waits_to_be_read=True): "Echo CreateTopics",
    RequestLimit(_ROWS): "CommitOffsets IngestFiles",
    RequestLimit(_NAMES, CallKind.STREAM): "WatchJob ServerReflectionInfo",
    RequestLimit(_NAMES, CallKind.OPEN): "Check List Watch",
}
_LIMITS: Mapping[str, RequestLimit] = {
    method: limit for limit, methods in _METHODS.items() for method in methods.split()
}


def request_limit(method: str, config: ServerConfig) -> RequestLimit:
    """The row of the method. Raises KeyError for one that has none."""
    limit = _LIMITS[method]
    if limit.request_bytes == _MESSAGES:
        return limit._replace(request_bytes=config.max_receive_bytes)
    if limit.request_bytes == _MESSAGE:
        body = config.store.get("max_body_bytes", StoreConfig.max_body_bytes)
        return limit._replace(request_bytes=min(body + _AROUND_BODY, config.max_receive_bytes))
    return limit


#: Calls that may be under way, by kind: of one connection, and of all together. Each holds memory
#: until it ends (a parked pull some KiB, a stream tens of KiB), so all of them together stay within
#: a gigabyte.
PLACES: dict[CallKind, Places] = {
    CallKind.SHORT: Places(of_peer=4096, in_all=8192),
    CallKind.PULL: Places(of_peer=8192, in_all=12_288),
    CallKind.STREAM: Places(of_peer=512, in_all=2048),
    CallKind.OPEN: OPEN_PLACES,
}
