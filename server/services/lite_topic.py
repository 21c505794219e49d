"""Lite topics: parents, subscriptions, lists and deletions. Receives are those of shared groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import lite_topics_pb2 as pb
from kvcq_client.pb.v1 import lite_topics_pb2_grpc
from server.access import current_caller
from server.wire import (
    bounded,
    lite_parent_out,
    lite_topic_out,
    not_negative,
    page_size_of,
    where_in,
)
from store.errors import InvalidArgumentError
from store.lite import Action, FromEnd, check_lite_topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from server.edge import Context
    from server.workers import Pools
    from store.lite import Synced
    from store.message_store import MessageStore

_ACTIONS = {
    pb.LITE_ACTION_ADD: Action.ADD,
    pb.LITE_ACTION_REMOVE: Action.REMOVE,
    pb.LITE_ACTION_COMPLETE: Action.COMPLETE,
    pb.LITE_ACTION_LEAVE: Action.LEAVE,
}


_DEFAULT_STATES = 100
_MOST_STATES = 1000
_DEFAULT_PARENTS = 20
_MOST_PARENTS = 100
#: Lite topics of each parent in a page of them.
_COUNTED = 1000


class LiteTopicService(lite_topics_pb2_grpc.LiteTopicServiceServicer):
    """The calls on lite topics. Owned by the event loop's thread. It accesses the store in
    threads."""

    def __init__(
        self, store: MessageStore, pools: Pools, forget_topic: Callable[[str], None]
    ) -> None:
        """`forget_topic` is called after a parent was created, on a worker."""
        self._lite = store.lite
        self._groups = store.groups
        self._pools = pools
        self._forget_topic = forget_topic

    async def CreateLiteParent(
        self, request: pb.CreateLiteParentRequest, context: Context
    ) -> pb.CreateLiteParentResponse:
        def make() -> None:
            self._lite.make(request.topic, request.expiry_ms, request.queue_count)
            self._forget_topic(request.topic)

        await self._pools.changes.run(make)
        return pb.CreateLiteParentResponse()

    async def DescribeLiteParent(
        self, request: pb.DescribeLiteParentRequest, context: Context
    ) -> pb.DescribeLiteParentResponse:
        found = await self._pools.lookups.run(self._lite.expiry_ms, request.topic)
        return pb.DescribeLiteParentResponse(expiry_ms=found)

    async def SyncLiteSubscriptions(
        self, request: pb.SyncLiteSubscriptionsRequest, context: Context
    ) -> pb.SyncLiteSubscriptionsResponse:
        action = _ACTIONS.get(request.action)
        if action is None:
            raise InvalidArgumentError("action", "must be one of ADD, REMOVE, COMPLETE, LEAVE")
        not_negative("offset", request.offset)
        last = not_negative("from_end", request.from_end)
        chosen = request.WhichOneof("start")
        start = FromEnd(last) if chosen == "from_end" else where_in(request, chosen)
        names, version = list(request.lite_topics), not_negative("version", request.version)
        group, client_id, caller = request.group, request.client_id, current_caller()

        def sync() -> Synced:
            settings = self._groups.describe(group)
            lite = None if settings is None else settings.lite
            # It takes lite topics from other clients, and may move the group in them.
            if lite is not None and action in (Action.ADD, Action.COMPLETE):
                caller.subscribes(lite.parent)
            return self._lite.sync(group, client_id, action, names, version, start)

        done = await self._pools.changes.run(sync)
        return pb.SyncLiteSubscriptionsResponse(subscribed=done.subscribed, lost=done.lost)

    async def ListLiteTopics(self, request: pb.ListLiteTopicsRequest, context: Context) -> bytes:
        size, after = page_size_of(request.page_size), request.page_token
        if request.with_states:
            size = bounded("page_size", request.page_size, _DEFAULT_STATES, _MOST_STATES)
        listing = self._lite.listing
        for field in ("prefix", "page_token"):
            if text := getattr(request, field):
                check_lite_topic(text, field)

        def page() -> pb.ListLiteTopicsResponse:
            # One more than asked for tells whether there is another page.
            found = listing.names(request.topic, request.prefix, after, size + 1)
            more, found = len(found) > size, found[:size]
            token = found[-1] if more else ""
            if not request.with_states:
                return pb.ListLiteTopicsResponse(lite_topics=found, next_page_token=token)
            states = listing.states(request.topic, found)
            return pb.ListLiteTopicsResponse(
                lite_topics=[one.name for one in states],
                next_page_token=token,
                states=map(lite_topic_out, states),
            )

        return await self._pools.scans.encoded(page)

    async def ListLiteParents(self, request: pb.ListLiteParentsRequest, context: Context) -> bytes:
        size = bounded("page_size", request.page_size, _DEFAULT_PARENTS, _MOST_PARENTS)

        def page() -> pb.ListLiteParentsResponse:
            found = self._lite.listing.parents(
                request.prefix, request.page_token, size + 1, _COUNTED
            )
            more, found = len(found) > size, found[:size]
            return pb.ListLiteParentsResponse(
                parents=[
                    pb.ListedLiteParent(topic=one.topic, lite=lite_parent_out(one)) for one in found
                ],
                next_page_token=found[-1].topic if more else "",
            )

        return await self._pools.scans.encoded(page)

    async def DeleteLiteTopics(
        self, request: pb.DeleteLiteTopicsRequest, context: Context
    ) -> pb.DeleteLiteTopicsResponse:
        topic, names = request.topic, list(request.lite_topics)
        deleted = await self._pools.changes.run(self._lite.delete, topic, names)
        return pb.DeleteLiteTopicsResponse(deleted=deleted)
