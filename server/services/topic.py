"""Topics: create, delete, describe, list. Everything may access the disk, so workers do it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.pb.v1 import kvcq_pb2_grpc
from server.edge import MAX_TOPICS
from server.texts import whole_number
from server.wire import (
    bounds_out,
    lite_parent_out,
    message_type_in,
    not_more,
    not_negative,
    page_size_of,
    topic_out,
)
from store.errors import InvalidArgumentError, UnknownTopicError
from store.format import is_system_topic
from store.light_queue import is_light
from store.metadata import KEEP_ALL, Retention

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from server.edge import Context
    from server.workers import Pools
    from store.message_store import MessageStore
    from store.metadata import TopicConfig

_I32_MAX = (1 << 31) - 1
#: Most lite topics that are counted for a description.
_COUNTED = 10_000


class TopicService(kvcq_pb2_grpc.TopicServiceServicer):
    """Topics and light queues by name."""

    def __init__(
        self,
        store: MessageStore,
        pools: Pools,
        forget_topic: Callable[[str], None],
        was_deleted: Callable[[str, int], None],
    ) -> None:
        """`forget_topic` is called after a topic was created or deleted; `was_deleted` after a
        deletion, with the number of its queues. Both run on a worker."""
        self._store = store
        self._pools = pools
        self._forget_topic = forget_topic
        self._was_deleted = was_deleted

    async def CreateTopics(self, request: pb.CreateTopicsRequest, context: Context) -> bytes:
        not_more("topics", request.topics, MAX_TOPICS, "topics")

        def create() -> pb.CreateTopicsResponse:
            wanted = [
                (
                    topic.name,
                    not_negative(f"topics[{index}].queue_count", topic.queue_count),
                )
                for index, topic in enumerate(request.topics)
            ]
            retentions = {
                topic.name: Retention(
                    topic.retention.time_ms,
                    topic.retention.bytes,
                    topic.retention.messages,
                    topic.retention.latest,
                )
                for topic in request.topics
                if topic.HasField("retention")
            }
            types = {
                topic.name: message_type
                for topic in request.topics
                if (message_type := message_type_in(topic.message_type)) is not None
            }
            made = self._store.create_topics(wanted, retentions, types)
            for name, _ in wanted:
                self._forget_topic(name)
            return pb.CreateTopicsResponse(topics=map(topic_out, made))

        return await self._pools.changes.encoded(create)

    async def UpdateTopic(self, request: pb.UpdateTopicRequest, context: Context) -> bytes:
        names = ("time_ms", "bytes", "messages", "latest")
        fields = [f"retention_{name}" for name in names]
        given = {
            name: getattr(request, field)
            for name, field in zip(names, fields, strict=True)
            if request.HasField(field)
        }
        message_type = message_type_in(request.message_type)
        if not given and message_type is None:
            every = ", ".join([*fields, "message_type"])
            raise InvalidArgumentError(fields[0], f"none of {every} is given")

        def update() -> pb.UpdateTopicResponse:
            if given:
                self._store.keep(
                    request.name,
                    time_ms=given.get("time_ms"),
                    size_bytes=given.get("bytes"),
                    messages=given.get("messages"),
                    latest=given.get("latest"),
                )
            if message_type is not None:
                self._store.take(request.name, message_type)
                self._forget_topic(request.name)
            return pb.UpdateTopicResponse(topic=topic_out(self._store.describe_topic(request.name)))

        return await self._pools.changes.encoded(update)

    async def DeleteTopic(
        self, request: pb.DeleteTopicRequest, context: Context
    ) -> pb.DeleteTopicResponse:
        name = request.name

        def delete() -> None:
            count = self._queue_count(name)
            try:
                self._store.delete_topic(name)
            finally:  # in the thread, because a cancelled call continues there
                self._forget_topic(name)
                self._was_deleted(name, count)

        await self._pools.changes.run(delete)
        return pb.DeleteTopicResponse()

    def _queue_count(self, name: str) -> int:
        """0 if it is deleted, except for rows that an earlier deletion could not remove."""
        if is_light(name):
            return 1
        try:
            return self._store.describe_topic(name).queue_count
        except UnknownTopicError:
            return 0

    async def DescribeTopic(self, request: pb.DescribeTopicRequest, context: Context) -> bytes:
        size = page_size_of(request.page_size)
        topic = await self._pools.lookups.run(self._store.describe_topic, request.name)
        queue_ids = range(topic.queue_count)[_first_of(request.page_token) :]
        token = str(queue_ids[size]) if len(queue_ids) > size else ""
        described = topic_out(topic)
        if not request.page_token:
            find = self._store.lite.listing.parent
            parent = await self._pools.scans.run(find, topic.name, _COUNTED)
            if parent is not None:
                described.lite.CopyFrom(lite_parent_out(parent))

        def describe(queue_ids: Sequence[int]) -> pb.DescribeTopicResponse:
            queues = [(topic.name, queue_id) for queue_id in queue_ids]
            bounds = self._store.bounds(queues)
            in_log, hidden = bounds, self._store.maintenance.hidden_messages
            if topic.retention != KEEP_ALL:
                in_log = self._store.bounds_in_log(queues)
            return pb.DescribeTopicResponse(
                topic=described,
                next_page_token=token,
                queues=[
                    bounds_out(
                        name, queue_id, bound, log_min_offset=low, superseded=hidden(name, queue_id)
                    )
                    for (name, queue_id), bound, (low, _) in zip(
                        queues, bounds, in_log, strict=True
                    )
                ],
            )

        if not queue_ids:
            return describe(queue_ids).SerializeToString()
        return await self._pools.scans.encoded_slices(describe, queue_ids[:size])

    async def ListTopics(self, request: pb.ListTopicsRequest, context: Context) -> bytes:
        size = page_size_of(request.page_size)
        after = request.page_token or None

        def page() -> pb.ListTopicsResponse:
            # One more than asked for tells whether there is another page.
            if request.light_queues:
                names = self._store.list_light_queues(request.prefix, after, size + 1)
                topics = [pb.Topic(name=name, queue_count=1) for name in names[:size]]
            else:
                found = self._listed(request, size + 1)
                names = [topic.name for topic in found]
                topics = list(map(topic_out, found[:size]))
            token = names[size - 1] if len(names) > size else ""
            return pb.ListTopicsResponse(topics=topics, next_page_token=token)

        return await self._pools.scans.encoded(page)

    def _listed(self, request: pb.ListTopicsRequest, count: int) -> list[TopicConfig]:
        """At most a handful of system topics are left out, which costs one more page."""
        found: list[TopicConfig] = []
        after = request.page_token or None
        while len(found) < count:
            page = self._store.list_topics(request.prefix, after, count)
            found += [one for one in page if request.system_topics or not is_system_topic(one.name)]
            if len(page) < count:
                break
            after = page[-1].name
        return found[:count]


def _first_of(token: str) -> int:
    """The queue with which a page of DescribeTopic begins."""
    queue_id = whole_number(token or "0", _I32_MAX)
    if queue_id is None:
        raise InvalidArgumentError("page_token", "was not returned by DescribeTopic")
    return queue_id
