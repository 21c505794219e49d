"""The base class for groups of calls: topics, timers, transactions and so on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.arguments import queue_of, start_of
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.transport import in_parts
from kvcq_client.values import Start

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kvcq_client.pb.v1 import shared_groups_pb2 as shared_pb
    from kvcq_client.transport import Connection
    from kvcq_client.values import Queue

#: Most queues in one request; the server rejects more.
QUEUES_A_CALL = 10_000


class CallGroup:
    """Calls over one connection, in its event loop."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._call = connection.call
        self._messages = connection.messages
        self._topics = connection.topics
        self._groups = connection.groups
        self._admin = connection.admin
        self._shared = connection.shared_groups
        self._timers = connection.timers
        self._transactions = connection.transactions
        self._lite = connection.lite_topics


def queues_out(queues: Iterable[Queue]) -> Iterator[list[pb.Queue]]:
    """Yield the queues in lists for one request each. Raises TypeError, ValueError."""
    wanted = [queue_of("queues", one) for one in queues]
    for part in in_parts(wanted, QUEUES_A_CALL):
        yield [pb.Queue(topic=topic, queue_id=queue_id) for topic, queue_id in part]


def set_where(
    request: pb.ResetOffsetsRequest | shared_pb.ResetGroupRequest,
    to: Start | str | int,
    time_ms: int | None,
) -> None:
    """Set where a group is moved to: an end, an offset, or a time, which wins over `to`.

    Raises TypeError, ValueError.
    """
    if time_ms is not None:
        request.time_ms = time_ms
    elif isinstance(to, int):
        request.offset = to
    else:
        match start_of("to", to):
            case Start.EARLIEST:
                request.earliest = True
            case Start.LATEST:
                request.latest = True
            case Start.COMMITTED:
                raise ValueError("to: EARLIEST, LATEST, or an offset")
