"""What each method takes: how many bytes a request may have, and how its calls are counted.

Every method that is served has a row; a test compares the rows with the descriptors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from server.call_gate import CallKind, Places

if TYPE_CHECKING:
    from collections.abc import Mapping

    from server.config import ServerConfig

#: A request that only names things: the longest are a key, a tag filter, or a cursor.
_NAMES = 128 << 10
#: Rows of up to 10,000 queues, rules or files.
_ROWS = 4 << 20
#: 100,000 topics with their longest names.
_TOPICS = 16 << 20
#: What `max_receive_bytes` allows.
_MESSAGES = -1


class RequestLimit(NamedTuple):
    """Limits of one method."""

    request_bytes: int
    kind: CallKind = CallKind.SHORT


_LIMITS: Mapping[str, RequestLimit] = {
    "Put": RequestLimit(_MESSAGES),
    "PutBatch": RequestLimit(_MESSAGES),
    "PutStream": RequestLimit(_MESSAGES, CallKind.STREAM),
    "Pull": RequestLimit(_NAMES, CallKind.PULL),
    "Subscribe": RequestLimit(_MESSAGES, CallKind.STREAM),
    "Query": RequestLimit(_NAMES),
    "Get": RequestLimit(_NAMES),
    "GetOffsets": RequestLimit(_ROWS),
    "SearchTime": RequestLimit(_NAMES),
    "Echo": RequestLimit(_MESSAGES),
    "CreateTopics": RequestLimit(_TOPICS),
    "DeleteTopic": RequestLimit(_NAMES),
    "DescribeTopic": RequestLimit(_NAMES),
    "ListTopics": RequestLimit(_NAMES),
    "CommitOffsets": RequestLimit(_ROWS),
    "FetchOffsets": RequestLimit(_ROWS),
    "ResetOffsets": RequestLimit(_NAMES),
    "ListGroupOffsets": RequestLimit(_NAMES),
    "ListGroups": RequestLimit(_NAMES),
    "DeleteGroup": RequestLimit(_NAMES),
    "GetStatistics": RequestLimit(_NAMES),
    "PlanMigration": RequestLimit(_NAMES),
    "StartMigration": RequestLimit(_ROWS),
    "GetMigrationStatus": RequestLimit(_NAMES),
    "VerifyMigration": RequestLimit(_NAMES),
    "ListDifferences": RequestLimit(_NAMES),
    "Cutover": RequestLimit(_NAMES),
    "Rollback": RequestLimit(_NAMES),
    "FinishMigration": RequestLimit(_NAMES),
    "GetRouting": RequestLimit(_NAMES),
    "SetRouting": RequestLimit(_ROWS),
    "CancelMigration": RequestLimit(_NAMES),
    "ResumeMigration": RequestLimit(_NAMES),
    "IngestFiles": RequestLimit(_ROWS),
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
    return limit


def call_places(config: ServerConfig) -> dict[CallKind, Places]:
    """Calls that may be under way, by kind."""
    return {
        CallKind.SHORT: Places(config.max_peer_calls, config.max_calls),
        CallKind.PULL: Places(config.max_peer_pulls, config.max_pulls),
        CallKind.STREAM: Places(config.max_peer_streams, config.max_streams),
    }
