"""What a server is busy with, as it tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kvcq_client.pb.v1 import kvcq_pb2 as pb


class TopicTraffic(NamedTuple):
    """What was put and pulled since the row began. It only rises, and begins again at 0 when the
    topic had no row for a time."""

    topic: str  # "%LMQ%": all light queues; empty: all topics without a row
    messages_in: int
    bytes_in: int  # as they are in the log
    messages_out: int
    bytes_out: int


class GroupLag(NamedTuple):
    """How far a group is behind in a topic, over all its queues."""

    group: str
    topic: str  # "%LMQ%": its light queues; empty: topics beyond the first 100 of the group
    messages: int
    since_ms: int | None  # when the oldest that it has not committed was stored; ms since 1970


class Activity(NamedTuple):
    """Traffic by topic, and how far groups are behind."""

    topics: list[TopicTraffic]  # those with most traffic
    groups: list[GroupLag]  # those that are farthest behind, the farthest first
    topic_count: int | None  # None until all were counted
    group_count: int | None
    groups_at_ms: int | None  # when the look at the groups began; None before the first

    @classmethod
    def of(cls, message: pb.GetActivityResponse) -> Activity:
        def given(name: str) -> int | None:
            return getattr(message, name) if message.HasField(name) else None

        return cls(
            [
                TopicTraffic(
                    one.topic, one.messages_in, one.bytes_in, one.messages_out, one.bytes_out
                )
                for one in message.topics
            ],
            [
                GroupLag(
                    one.group,
                    one.topic,
                    one.messages,
                    one.since_ms if one.HasField("since_ms") else None,
                )
                for one in message.groups
            ],
            given("topic_count"),
            given("group_count"),
            given("groups_at_ms"),
        )
