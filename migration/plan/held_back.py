"""Counts messages that a RocketMQ broker keeps in system topics until it delivers them.

Source: RocketMQ 5.5, ScheduleMessageService, TimerMessageStore, TransactionalMessageUtil.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from migration.waiting import (
    HALF_TOPIC,
    RETRY_TOPICS,
    REVIVE_TOPICS,
    find_delayed,
    find_halves,
    find_timers,
)
from store.format import SCHEDULE_TOPIC
from store.state import DEAD_LETTERS, TIMER_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from migration.broker_config import BrokerConfig
    from migration.plan.log_survey import LogSurvey
    from migration.waiting import Found, InFlight, TimerFiles, Watched


class HeldBack(NamedTuple):
    """Messages of one kind that the broker keeps, such as delayed messages."""

    kind: str
    topic: str
    records: int  # in the log, including delivered ones
    waiting: int  # not delivered yet
    outcome: str  # what `start` does with them

    def __str__(self) -> str:
        return (
            f"{self.records} {self.kind} in {self.topic}, {self.waiting} not delivered yet: "
            f"{self.outcome}"
        )


def held_back(log: LogSurvey, watched: Watched, timers: TimerFiles | None) -> tuple[HeldBack, ...]:
    """One entry for each kind in the log."""
    kinds = (
        ("delayed messages", SCHEDULE_TOPIC, _delayed(watched), "delivered when they are due"),
        (
            "timer messages",
            TIMER_TOPIC,
            find_timers(watched, timers, 0),
            "delivered when they are due",
        ),
        (
            "half messages of transactions",
            HALF_TOPIC,
            find_halves(watched, 0),
            "open transactions, which their producers are asked to decide",
        ),
    )
    return tuple(
        HeldBack(kind, topic, records, _waiting(found), outcome)
        for kind, topic, found, outcome in kinds
        if (records := log.records_of(topic))
    )


def held_for_groups(
    log: LogSurvey, config: BrokerConfig, pops: frozenset[str], in_flight: Sequence[InFlight]
) -> tuple[HeldBack, ...]:
    """Messages in flight, messages that wait for redelivery, and dead letters."""
    found = []
    if in_flight:
        outcome = f"delivered again to {len({each.group for each in in_flight})} shared groups"
        count = len(in_flight)
        found.append(HeldBack("messages in flight", REVIVE_TOPICS + "*", count, count, outcome))
    done = {
        each.topic: each.offset
        for each in config.offsets
        if each.topic.startswith(RETRY_TOPICS) and _is_retry_of(each.topic, each.group)
    }
    for topic in sorted(log.topics):
        records = log.records_of(topic)
        if topic.startswith(RETRY_TOPICS) and records:
            end = max(log.queues.last((topic, each)).next_offset for each in log.ids_of(topic))
            waiting = min(records, max(0, end - done.get(topic, 0)))
            outcome = "delivered again to the group, in their original topics"
            if not any(_is_retry_of(topic, group) for group in pops):
                outcome = "stay in that topic: readers of the group must read that topic as well"
            if waiting:
                kind = "messages to be delivered again"
                found.append(HeldBack(kind, topic, records, waiting, outcome))
        elif topic.startswith(DEAD_LETTERS) and records:
            outcome = f"kvcq dlq list {topic.removeprefix(DEAD_LETTERS)}"
            found.append(HeldBack("dead letters", topic, records, records, outcome))
    return tuple(found)


def _is_retry_of(topic: str, group: str) -> bool:
    rest = topic.removeprefix(RETRY_TOPICS + group)
    return rest != topic and rest[:1] in ("", "_", "+")


def _delayed(watched: Watched) -> Iterator[Found]:
    for queue_id in watched.ids(SCHEDULE_TOPIC):
        yield from find_delayed(watched, queue_id, 0)


def _waiting(found: Iterable[Found]) -> int:
    return sum(each.is_waiting for each in found)
