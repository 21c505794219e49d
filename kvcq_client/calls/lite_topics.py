"""Calls on lite topics: sessions by the million, each a light queue of a parent topic."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, NamedTuple

from kvcq_client.arguments import checked, text
from kvcq_client.calls.call_group import CallGroup
from kvcq_client.calls.shared_groups import received_in
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.pb.v1 import lite_topics_pb2 as lite_pb
from kvcq_client.pb.v1 import shared_groups_pb2 as shared_pb
from kvcq_client.transport import in_parts, paged
from kvcq_client.values import Queue, Start, lite_queue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from kvcq_client.shared_groups import Received

#: Names of one request; the server takes no more.
NAMES_A_CALL = 10_000


class AtTime(NamedTuple):
    """The first message that was stored at that time or later; ms since 1970."""

    time_ms: int


#: Where a group begins in a lite topic: a Start, a time, or an offset. -3 means three messages
#: before the end.
LiteStart = Start | int | AtTime


class ReceivedLite(NamedTuple):
    """The answer to one receive from lite topics."""

    messages: list[Received]
    lost: list[str]  # lite topics of an exclusive group that other clients have taken from this one


@checked()
class LiteTopicCalls(CallGroup):
    """Makes parents of lite topics, lists and deletes lite topics."""

    async def create_lite_parent(
        self,
        topic: str,
        *,
        expiry_s: float = 0.0,
        queue_count: int = 0,
        timeout_s: float | None = None,
    ) -> None:
        """Create a topic for lite topics durably, or change the expiry of one.

        A lite topic ends when its last message is older than `expiry_s` and no client is subscribed
        to it by name; 0: never. `queue_count`: of a new topic; 0 for the server's default.
        Repeatable.
        """
        await self._call(
            self._lite.CreateLiteParent,
            lite_pb.CreateLiteParentRequest(
                topic=topic, expiry_ms=round(expiry_s * 1000), queue_count=queue_count
            ),
            timeout_s,
        )

    async def lite_expiry_s(self, topic: str, *, timeout_s: float | None = None) -> float:
        """After how long an idle lite topic of this parent ends; 0.0: never.

        Raises NotFoundError, and InvalidArgumentError for a topic that is no parent."""
        request = lite_pb.DescribeLiteParentRequest(topic=topic)
        answer = await self._call(self._lite.DescribeLiteParent, request, timeout_s)
        return float(answer.expiry_ms / 1000)

    async def list_lite_topics(
        self, topic: str, prefix: str = "", *, timeout_s: float | None = None
    ) -> AsyncIterator[str]:
        """Lite topics of the parent that have messages: shorter names first, then by bytes."""
        request = lite_pb.ListLiteTopicsRequest(topic=topic, prefix=prefix)
        async for page in paged(self._call, self._lite.ListLiteTopics, request, timeout_s):
            for name in page.lite_topics:
                yield name

    async def delete_lite_topics(
        self, topic: str, lite_topics: Iterable[str], *, timeout_s: float | None = None
    ) -> int:
        """Delete lite topics durably, with all that groups have of them; returns how many there
        were. Repeatable."""
        names = [text("lite_topics", name) for name in lite_topics]
        deleted = 0
        for part in in_parts(names, NAMES_A_CALL):
            request = lite_pb.DeleteLiteTopicsRequest(topic=topic, lite_topics=part)
            answer = await self._call(self._lite.DeleteLiteTopics, request, timeout_s)
            deleted += answer.deleted
        return deleted

    # --- for receivers ---------------------------------------------------------------------

    async def _sync_lite(
        self,
        group: str,
        client_id: str,
        action: lite_pb.LiteAction,
        names: Iterable[str],
        version: int,
        start: LiteStart | None = None,
    ) -> tuple[int, list[str]]:
        """Say what the client is subscribed to; returns to how many lite topics it is, and what
        others have taken from it."""
        request = lite_pb.SyncLiteSubscriptionsRequest(
            group=group, client_id=client_id, action=action, lite_topics=names, version=version
        )
        match start:
            case Start.EARLIEST:
                request.earliest = True
            case Start.LATEST:
                request.latest = True
            case int() if start < 0:
                request.from_end = -start
            case int():
                request.offset = start
            case AtTime(time_ms):
                request.time_ms = time_ms
            case _:
                pass
        answer = await self._call(self._lite.SyncLiteSubscriptions, request, None)
        return answer.subscribed, list(answer.lost)

    async def _receive_lite(
        self,
        parent: str,
        *,
        group: str,
        client_id: str,
        max_messages: int,
        max_bytes: int,
        wait_s: float,
        invisible_s: float,
        skip_damaged: bool,
        late: Callable[[bytes], None],
    ) -> ReceivedLite:
        """See SharedGroupCalls.receive, and Connection.call."""
        answer = await self._call(
            self._shared.Receive,
            shared_pb.ReceiveRequest(
                group=group,
                topic=parent,
                client_id=client_id,
                max_messages=max_messages,
                max_bytes=max_bytes,
                invisible_ms=round(invisible_s * 1000),
                wait_ms=round(wait_s * 1000),
                form=pb.RECORD_FORM_WHOLE,
                attempt_id=secrets.token_hex(8),
                skip_damaged=skip_damaged,
            ),
            self._connection.timeout_s + wait_s,
            late=late,
        )
        queues = {name: Queue(lite_queue(parent, name), 0) for name in set(answer.lite_topics)}
        messages = received_in(answer, [queues[name] for name in answer.lite_topics])
        return ReceivedLite(messages, list(answer.lost_lite_topics))
