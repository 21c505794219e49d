"""What each method takes: how many bytes a request may have, and how its calls are counted.

Every method that is served has a row; a test compares the rows with the descriptors.
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


_LIMITS: Mapping[str, RequestLimit] = {
    "Put": RequestLimit(_MESSAGE),
    "PutBatch": RequestLimit(_MESSAGES, waits_to_be_read=True),
    "PutStream": RequestLimit(_MESSAGES, CallKind.STREAM),
    "Pull": RequestLimit(_NAMES, CallKind.PULL),
    "Subscribe": RequestLimit(_MESSAGES, CallKind.STREAM),
    "Calls": RequestLimit(_CALLS, CallKind.STREAM),
    "Query": RequestLimit(_NAMES, answers_large=True),
    "Get": RequestLimit(_NAMES),
    "GetBatch": RequestLimit(_NAMES, answers_large=True),
    "GetOffsets": RequestLimit(_ROWS, answers_large=True),
    "SearchTime": RequestLimit(_NAMES),
    "Echo": RequestLimit(_MANY, answers_large=True, waits_to_be_read=True),
    "CreateTopics": RequestLimit(_MANY, answers_large=True, waits_to_be_read=True),
    "DeleteTopic": RequestLimit(_NAMES),
    "UpdateTopic": RequestLimit(_NAMES),
    "DescribeTopic": RequestLimit(_NAMES, answers_large=True),
    "ListTopics": RequestLimit(_NAMES, answers_large=True),
    "CommitOffsets": RequestLimit(_ROWS),
    "FetchOffsets": RequestLimit(_ROWS, answers_large=True),
    "ResetOffsets": RequestLimit(_NAMES, answers_large=True),
    "ListGroupOffsets": RequestLimit(_NAMES, answers_large=True),
    "ListGroups": RequestLimit(_NAMES, answers_large=True),
    "DeleteGroup": RequestLimit(_NAMES),
    "GetStatistics": RequestLimit(_NAMES),
    "GetActivity": RequestLimit(_NAMES, answers_large=True),
    "GetSettings": RequestLimit(_NAMES),
    "ReloadSettings": RequestLimit(_NAMES),
    "PlanMigration": RequestLimit(_NAMES, answers_large=True),
    "StartMigration": RequestLimit(_ROWS),
    "GetMigrationStatus": RequestLimit(_NAMES),
    "VerifyMigration": RequestLimit(_NAMES),
    "ListDifferences": RequestLimit(_NAMES, answers_large=True),
    "Cutover": RequestLimit(_NAMES),
    "Rollback": RequestLimit(_NAMES),
    "FinishMigration": RequestLimit(_NAMES),
    "GetRouting": RequestLimit(_NAMES),
    "SetRouting": RequestLimit(_ROWS),
    "CancelMigration": RequestLimit(_NAMES),
    "ResumeMigration": RequestLimit(_NAMES),
    "IngestFiles": RequestLimit(_ROWS),
    "StartJob": RequestLimit(_NAMES),
    "GetJob": RequestLimit(_NAMES),
    "ListJobs": RequestLimit(_NAMES, answers_large=True),
    "CancelJob": RequestLimit(_NAMES),
    "WatchJob": RequestLimit(_NAMES, CallKind.STREAM),
    "CreateUser": RequestLimit(_NAMES),
    "DeleteUser": RequestLimit(_NAMES),
    "ListUsers": RequestLimit(_NAMES, answers_large=True),
    "RotateSecret": RequestLimit(_NAMES),
    "SetLimits": RequestLimit(_NAMES),
    "Grant": RequestLimit(_ROWS, answers_large=True),
    "Revoke": RequestLimit(_ROWS, answers_large=True),
    "GetUser": RequestLimit(_NAMES, answers_large=True),
    "WhoAmI": RequestLimit(_NAMES, answers_large=True),
    # Of grpc.health.v1 and grpc.reflection.v1alpha.
    "Check": RequestLimit(_NAMES),
    "List": RequestLimit(_NAMES),
    "Watch": RequestLimit(_NAMES, CallKind.STREAM),
    "ServerReflectionInfo": RequestLimit(_NAMES, CallKind.STREAM),
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


def call_places(config: ServerConfig) -> dict[CallKind, Places]:
    """Calls that may be under way, by kind."""
    return {
        CallKind.SHORT: Places(config.max_peer_calls, config.max_calls),
        CallKind.PULL: Places(config.max_peer_pulls, config.max_pulls),
        CallKind.STREAM: Places(config.max_peer_streams, config.max_streams),
    }
