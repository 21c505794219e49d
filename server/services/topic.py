"""Topics: create, delete, describe, list. Everything here may touch the disk: workers do it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.pb.v1 import kvcq_pb2_grpc
from server.wire import convert
from server.wire.request_fields import MAX_TOPICS
from server.workers import QUEUES_A_TURN
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from server.metrics import CallMetrics
    from server.stage import Stage
    from server.wire.call_errors import Context


class TopicService(kvcq_pb2_grpc.TopicServiceServicer):
    """Topics and light queues by name."""

    def __init__(self, stage: Stage, metrics: CallMetrics) -> None:
        self._stage = stage
        self.metrics = metrics

    async def CreateTopics(self, request: pb.CreateTopicsRequest, context: Context) -> bytes:
        parts = self._stage.parts
        if len(request.topics) > MAX_TOPICS:
            raise InvalidArgumentError(
                "topics", f"{len(request.topics)} topics, more than {MAX_TOPICS}"
            )

        def create() -> pb.CreateTopicsResponse:
            wanted = [
                (
                    topic.name,
                    convert.not_negative(f"topics[{index}].queue_count", topic.queue_count),
                )
                for index, topic in enumerate(request.topics)
            ]
            made = parts.store.create_topics(wanted)
            for name, _ in wanted:
                parts.chooser.forget(name)
            return pb.CreateTopicsResponse(topics=map(convert.topic_out, made))

        return await parts.changes.encoded(create)

    async def DeleteTopic(
        self, request: pb.DeleteTopicRequest, context: Context
    ) -> pb.DeleteTopicResponse:
        parts = self._stage.parts
        try:
            await parts.changes.run(parts.store.delete_topic, request.name)
        finally:
            parts.chooser.forget(request.name)
        return pb.DeleteTopicResponse()

    async def DescribeTopic(self, request: pb.DescribeTopicRequest, context: Context) -> bytes:
        parts = self._stage.parts
        topic = await parts.workers.run(parts.store.describe_topic, request.name)

        def describe(queue_ids: Sequence[int]) -> pb.DescribeTopicResponse:
            queues = [(topic.name, queue_id) for queue_id in queue_ids]
            return pb.DescribeTopicResponse(
                topic=convert.topic_out(topic),
                queues=[
                    convert.bounds_out(name, queue_id, bounds)
                    for (name, queue_id), bounds in zip(
                        queues, parts.store.bounds(queues), strict=True
                    )
                ],
            )

        queue_ids = range(topic.queue_count)
        return await parts.scans.encoded_slices(describe, queue_ids, QUEUES_A_TURN)

    async def ListTopics(self, request: pb.ListTopicsRequest, context: Context) -> bytes:
        parts = self._stage.parts
        size = convert.bounded(
            "page_size", request.page_size, convert.DEFAULT_PAGE_SIZE, convert.MAX_PAGE_SIZE
        )
        after = request.page_token or None

        def page() -> pb.ListTopicsResponse:
            # One more than asked for tells whether there is another page.
            if request.light_queues:
                names = parts.store.list_light_queues(request.prefix, after, size + 1)
                topics = [pb.Topic(name=name, queue_count=1) for name in names[:size]]
            else:
                found = parts.store.list_topics(request.prefix, after, size + 1)
                names = [topic.name for topic in found]
                topics = list(map(convert.topic_out, found[:size]))
            token = names[size - 1] if len(names) > size else ""
            return pb.ListTopicsResponse(topics=topics, next_page_token=token)

        return await parts.scans.encoded(page)
