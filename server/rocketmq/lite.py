"""Consumers of lite topics among RocketMQ 5's clients.

Such a client is bound to one parent topic by its group. It sends its lite topics with
SyncLiteSubscription, the complete set every 30 seconds, and receives from the parent. Whether a
group is for lite topics is fixed when it is created, and a receive does not say it. So if a group
is created by its first client, that client's settings decide.

RocketMQ expects such groups to be created beforehand. A group created here behaves like RocketMQ's:
the messages of a lite topic are in order, and a failing message is retried as often as in any other
group.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from server.access import ResourceKind, Role, current_caller
from server.errors import ClientStatusError, ForbiddenError
from server.rocketmq.pb import messaging_pb2 as pb
from server.rocketmq.pb import values_pb2 as v2
from server.wire import not_negative
from store.errors import (
    GroupExistsError,
    InvalidArgumentError,
    LiteGroupError,
    LiteQuotaError,
    UnknownGroupError,
    UnknownLiteClientError,
    UnknownTopicError,
)
from store.groups import AtOffset, AtTime, Edge
from store.lite import MOST_SYNCED, Action, FromEnd
from store.metadata import LiteGroup, SharedGroup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from server.reads import Reads, Receive
    from server.rocketmq.clients import ClientKey, Clients
    from server.rocketmq.messages_out import EncodedAnswer
    from server.rocketmq.telemetry import Streams
    from server.workers import Pools
    from store.groups import Where
    from store.lite import Synced
    from store.message_store import MessageStore

_ACTIONS = {
    v2.PARTIAL_ADD: Action.ADD,
    v2.PARTIAL_REMOVE: Action.REMOVE,
    v2.COMPLETE_ADD: Action.COMPLETE,
    v2.COMPLETE_REMOVE: Action.LEAVE,
}
#: Maximum number of deliveries in a group created by a client: RocketMQ's 16 retries.
_MOST_DELIVERIES = 17
_CONSUMERS = (v2.LITE_PUSH_CONSUMER, v2.LITE_SIMPLE_CONSUMER)


def is_lite(settings: v2.Settings) -> bool:
    """Whether the client that sent these settings is a consumer of lite topics."""
    return settings.client_type in _CONSUMERS


class LiteConsumers:
    """Serves clients of lite topics. Owned by the event loop's thread; calls the store in
    threads."""

    def __init__(
        self, store: MessageStore, reads: Reads, pools: Pools, clients: Clients, streams: Streams
    ) -> None:
        self._store = store
        self._lite = store.lite
        self._groups = store.groups
        self._reads = reads
        self._pools = pools
        self._clients = clients
        self._streams = streams
        # Tasks that notify clients of names they have lost.
        self._telling: dict[ClientKey, asyncio.Task[None]] = {}

    async def settled(self, settings: v2.Settings) -> None:
        """Handle the settings of a client of lite topics: create its group if needed. Raises like
        `_make`."""
        parents = {each.topic.name for each in settings.subscription.subscriptions}
        if len(parents) == 1:
            await self._make(settings.subscription.group.name, parents.pop())

    async def sync(self, client: ClientKey, request: pb.SyncLiteSubscriptionRequest) -> None:
        """Change the client's subscriptions. Raises what LiteTopics.sync raises."""
        group, parent = request.group.name, request.topic.name
        action = _ACTIONS.get(request.action)
        if action is None:
            raise InvalidArgumentError("action", f"{request.action} is not from 0 to 3")
        names, start = list(request.lite_topic_set), _start_of(request.offset_option)
        version = not_negative("version", request.version)
        if action is not Action.LEAVE:
            self._clients.note_active(client, is_lite=True)
            await self._make(group, parent)

        def sync() -> Synced:
            settings = self._groups.describe(group)
            lite = settings.lite if settings is not None else None
            if lite is None:
                raise LiteGroupError(group, None)
            if parent != lite.parent:
                raise InvalidArgumentError(
                    "topic", f"group {group!r} receives from lite topics of {lite.parent!r}"
                )
            if len(names) > max(MOST_SYNCED, lite.client_quota):
                raise LiteQuotaError("client", len(names), lite.client_quota)
            return self._lite.sync(group, client[1], action, names, version, start)

        done = await self._pools.changes.run(sync)
        self._tell_lost(client, done.lost)

    async def leave(self, client: ClientKey, group: str) -> None:
        """Remove the subscriptions of a client that has ended. Repeatable."""
        if self._lite.subscriptions.is_wildcard(group) is None:
            return  # nobody is subscribed
        with suppress(ForbiddenError, UnknownGroupError, LiteGroupError):
            current_caller().check(Role.SUBSCRIBE, ResourceKind.GROUP, group)
            await self._pools.changes.run(self._lite.sync, group, client[1], Action.LEAVE)

    async def take(
        self, client: ClientKey, wanted: Receive[EncodedAnswer], wait_s: float
    ) -> EncodedAnswer:
        """Like Reads.take, for clients of lite topics and others."""
        is_lite = self._clients.is_lite(client)
        if is_lite is False:
            return await self._reads.take(wanted, wait_s)
        if is_lite:
            await self._make(wanted.group, wanted.topic)
            return await self._take_lite(client, wanted, wait_s)
        # The client has not sent its settings since the server started.
        if self._lite.subscriptions.is_wildcard(wanted.group) is None:
            if not self._store.has_group(wanted.group) and self.takes_lite(wanted.topic):
                raise ClientStatusError(
                    v2.UNRECOGNIZED_CLIENT_TYPE,
                    "this client has not sent its settings yet: they say what its group is for",
                )
            with suppress(LiteGroupError):
                return await self._reads.take(wanted, wait_s)
        return await self._take_lite(client, wanted, wait_s)

    async def _take_lite(
        self, client: ClientKey, wanted: Receive[EncodedAnswer], wait_s: float
    ) -> EncodedAnswer:
        if wanted.tag_filter is not None:
            raise InvalidArgumentError(
                "tag_filter", "is not for lite topics: their messages are for one task"
            )
        wanted = wanted._replace(client_id=client[1])
        try:
            answer = await self._reads.take(wanted, wait_s)
        except UnknownLiteClientError:
            # The client sends its subscriptions within 30 seconds. Until then the receive waits.
            enter = partial(self._lite.sync, wanted.group, client[1], Action.ADD)
            await self._pools.changes.run(enter)
            answer = await self._reads.take(wanted, wait_s)
        self._tell_lost(client, answer.lost)
        return answer

    def takes_lite(self, topic: str) -> bool:
        """Whether the topic exists and is a parent of lite topics."""
        try:
            return self._lite.is_parent(topic)
        except (UnknownTopicError, InvalidArgumentError):
            return False

    async def _make(self, group: str, parent: str) -> None:
        """Create the group for lite topics of `parent`, if it does not exist.

        Raises UnknownGroupError if clients may not create groups, UnknownTopicError,
        InvalidArgumentError if the topic is not a parent of lite topics, TooManyGroupsError.
        """
        if self._store.has_group(group):
            return
        current_caller().check(Role.SUBSCRIBE, ResourceKind.GROUP, group)
        current_caller().subscribes(parent)
        if not self._store.config.auto_create_groups:
            raise UnknownGroupError(group)
        await self._pools.lookups.run(self._lite.expiry_ms, parent)
        settings = SharedGroup(
            max_deliveries=_MOST_DELIVERIES, in_order=True, lite=LiteGroup(parent)
        )
        with suppress(GroupExistsError):
            await self._reads.make_group(group, settings)

    def _tell_lost(self, client: ClientKey, names: Sequence[str]) -> None:
        """Send the client the lite topics that others have taken. If a send is in progress, or the
        client has no stream, it gets them when it next synchronizes."""
        if names and client not in self._telling:
            task = asyncio.create_task(self._streams.tell_each(client, map(_lost, names)))
            self._telling[client] = task
            task.add_done_callback(lambda _: self._telling.pop(client))


def _lost(name: str) -> pb.TelemetryCommand:
    return pb.TelemetryCommand(
        notify_unsubscribe_lite_command=pb.NotifyUnsubscribeLiteCommand(lite_topic=name)
    )


def _start_of(option: v2.OffsetOption) -> Where | FromEnd | None:
    """Where the group starts in lite topics that are new to the client; None: at its position."""
    match option.WhichOneof("offset_type"):
        case "policy" if option.policy == v2.OffsetOption.MIN:
            return Edge.EARLIEST
        case "policy" if option.policy == v2.OffsetOption.MAX:
            return Edge.LATEST
        case "offset":
            return AtOffset(not_negative("offset", option.offset))
        case "tail_n":
            return FromEnd(not_negative("from_end", option.tail_n))
        case "timestamp":
            return AtTime(not_negative("from_time", option.timestamp))
        case _:
            return None
