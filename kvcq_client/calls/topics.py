"""Calls on topics and light queues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kvcq_client.arguments import (
    INT32_MAX,
    checked,
    text,
    whole,
)
from kvcq_client.calls.call_group import CallGroup
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.transport import in_parts, paged
from kvcq_client.values import (
    MessageType,
    QueueState,
    Retention,
    Topic,
)
from kvcq_client.wire import from_wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable


#: Topics of one request; the server takes no more.
_TOPICS_A_CALL = 10_000


@checked()
class TopicCalls(CallGroup):
    """Creates, changes, lists and deletes topics."""

    async def create_topic(
        self,
        name: str,
        queue_count: int | None = None,
        *,
        retention: Retention | None = None,
        message_type: MessageType | None = None,
        timeout_s: float | None = None,
    ) -> Topic:
        """Create a topic durably, with `queue_count` queues or the server's default.

        Without a `retention` it keeps everything in the log; without a `message_type` RocketMQ's
        clients may send messages of any type. Repeatable; raises AlreadyExistsError if the topic
        exists with another count, or another retention or type than given.
        """
        made = await self.create_topics(
            {name: queue_count},
            retention=retention,
            message_type=message_type,
            timeout_s=timeout_s,
        )
        return made[0]

    async def create_topics(
        self,
        topics: Mapping[str, int | None] | Mapping[str, int] | Iterable[str],
        *,
        retention: Retention | None = None,
        message_type: MessageType | None = None,
        timeout_s: float | None = None,
    ) -> list[Topic]:
        """Create topics, given as names or as names and queue counts; 10,000 at a time or none."""
        kept = None if retention is None else _retention_out(retention)
        given = topics.items() if isinstance(topics, Mapping) else ((name, None) for name in topics)
        wanted = {text("topics", name): count for name, count in given}
        items = [
            (name, None if count is None else whole("topics", count, INT32_MAX))
            for name, count in wanted.items()
        ]
        made: list[Topic] = []
        for part in in_parts(items, _TOPICS_A_CALL):
            answer = await self._call(
                self._topics.CreateTopics,
                pb.CreateTopicsRequest(
                    topics=[
                        pb.CreateTopicRequest(
                            name=name,
                            queue_count=count,
                            retention=kept,
                            message_type=_type_out(message_type),
                        )
                        for name, count in part
                    ]
                ),
                timeout_s,
            )
            made += (from_wire(Topic, topic) for topic in answer.topics)
        return made

    async def update_topic(
        self,
        name: str,
        *,
        retention_time_ms: int | None = None,
        retention_bytes: int | None = None,
        retention_messages: int | None = None,
        retention_latest: bool | None = None,
        message_type: MessageType | None = None,
        timeout_s: float | None = None,
    ) -> Topic:
        """Change what the topic keeps, see Retention, or what RocketMQ's clients may send to it.
        None leaves a setting unchanged.

        Raises NotFoundError, and InvalidArgumentError if nothing is given.
        """
        answer = await self._call(
            self._topics.UpdateTopic,
            pb.UpdateTopicRequest(
                name=name,
                retention_time_ms=retention_time_ms,
                retention_bytes=retention_bytes,
                retention_messages=retention_messages,
                retention_latest=retention_latest,
                message_type=_type_out(message_type),
            ),
            timeout_s,
        )
        return from_wire(Topic, answer.topic)

    async def delete_topic(self, name: str, *, timeout_s: float | None = None) -> None:
        """Delete a topic or light queue with all its messages. Raises NotFoundError."""
        await self._call(
            self._topics.DeleteTopic,
            pb.DeleteTopicRequest(name=name),
            timeout_s,
            # If a response was lost, a repeated call would report that the topic does not exist.
            may_repeat=False,
        )

    async def topic_queues(
        self, name: str, *, timeout_s: float | None = None
    ) -> tuple[Topic, list[QueueState]]:
        """A topic, and its queues by id. Raises NotFoundError."""
        request = pb.DescribeTopicRequest(name=name)
        pages = paged(self._call, self._topics.DescribeTopic, request, timeout_s)
        found = [page async for page in pages]
        queues = [from_wire(QueueState, one) for page in found for one in page.queues]
        return from_wire(Topic, found[0].topic), queues

    async def describe_topic(self, name: str, *, timeout_s: float | None = None) -> Topic:
        """A topic. Raises NotFoundError."""
        answer = await self._call(
            self._topics.DescribeTopic,
            pb.DescribeTopicRequest(name=name, page_size=1),
            timeout_s,
        )
        return from_wire(Topic, answer.topic)

    async def topics(
        self,
        prefix: str = "",
        *,
        light_queues: bool = False,
        system_topics: bool = False,
        timeout_s: float | None = None,
    ) -> AsyncIterator[Topic]:
        """Yield topics or light queues with the prefix. `timeout_s` is for each page of 1,000.

        `system_topics`: include the server's internal topics, and those of the broker in an adopted
        store.
        """
        request = pb.ListTopicsRequest(
            prefix=prefix, light_queues=light_queues, system_topics=system_topics
        )
        async for page in paged(self._call, self._topics.ListTopics, request, timeout_s):
            for topic in page.topics:
                yield from_wire(Topic, topic)


def _type_out(message_type: MessageType | None) -> str | None:
    return None if message_type is None else f"MESSAGE_TYPE_{MessageType(message_type).name}"


def _retention_out(retention: Retention) -> pb.Retention:
    *numbers, latest = retention
    time_ms, size, messages = (whole("retention", number) for number in numbers)
    return pb.Retention(time_ms=time_ms, bytes=size, messages=messages, latest=bool(latest))
