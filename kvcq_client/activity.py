"""What a server is busy with, as it tells it."""

from __future__ import annotations

from typing import NamedTuple


class TopicTraffic(NamedTuple):
    """What was put and pulled since the row began. It only rises, and begins again at 0 when the
    topic had no row for a time."""

    topic: str  # "%LMQ%": all light queues; empty: all topics without a row
    messages_in: int
    bytes_in: int  # as they are in the log
    messages_out: int
    bytes_out: int


class GroupLag(NamedTuple):
    """How far a reader group is behind in a topic, over all its queues."""

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
