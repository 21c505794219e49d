"""The current load of a server: traffic of topics, and lag of groups."""

from __future__ import annotations

from typing import NamedTuple


class TopicTraffic(NamedTuple):
    """Counters of a topic since its row was created. They start again at 0 if the row was dropped
    for a while."""

    topic: str  # "%LMQ%" for all light queues; "" for all topics without a row
    messages_in: int
    bytes_in: int  # as stored in the log
    messages_out: int
    bytes_out: int


class GroupLag(NamedTuple):
    """How far a group is behind in a topic, over all its queues."""

    group: str
    topic: str  # "%LMQ%" for its light queues; "" for topics beyond the group's first 100
    messages: int  # uncommitted; of a shared group, not done
    since_ms: int | None  # when the oldest of them was stored; ms since 1970
    shared: bool = False
    in_flight: int = 0  # shared group: messages that receivers have now
    waiting_again: int = 0  # shared group: messages that wait for redelivery


class GroupDeadLetters(NamedTuple):
    """Messages that were delivered as often as their group allows, neither redriven nor deleted."""

    group: str
    messages: int


class Activity(NamedTuple):
    """Traffic of topics, and lag of groups."""

    topics: list[TopicTraffic]  # the busiest
    groups: list[GroupLag]  # by lag, the largest first
    topic_count: int | None  # None until all have been counted
    group_count: int | None
    groups_at_ms: int | None  # when lags were looked up; None before the first time
    dead_letters: list[GroupDeadLetters] = []  # noqa: RUF012 - most first; never changed
