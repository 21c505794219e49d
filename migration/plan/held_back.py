"""What a RocketMQ broker keeps in topics of its own until it delivers it: counted for people.

Source: RocketMQ 5.5, ScheduleMessageService, TimerMessageStore, TransactionalMessageUtil.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from migration.waiting import HALF_TOPIC, find_delayed, find_halves, find_timers
from store.format import SCHEDULE_TOPIC
from store.state import TIMER_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from migration.plan.log_survey import LogSurvey
    from migration.waiting import Found, TimerFiles, Watched


class HeldBack(NamedTuple):
    """Messages of one kind in the log."""

    kind: str
    topic: str
    records: int  # in the log, delivered ones included
    waiting: int  # not delivered yet
    outcome: str  # what becomes of these

    def __str__(self) -> str:
        return (
            f"{self.records} {self.kind} in {self.topic}, {self.waiting} not delivered yet: "
            f"{self.outcome}"
        )


def held_back(log: LogSurvey, watched: Watched, timers: TimerFiles | None) -> tuple[HeldBack, ...]:
    """Of each kind that the log has."""
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
            "open transactions, about which their producers are asked",
        ),
    )
    return tuple(
        HeldBack(kind, topic, records, _waiting(found), outcome)
        for kind, topic, found, outcome in kinds
        if (records := log.records_of(topic))
    )


def _delayed(watched: Watched) -> Iterator[Found]:
    for queue_id in watched.ids(SCHEDULE_TOPIC):
        yield from find_delayed(watched, queue_id, 0)


def _waiting(found: Iterable[Found]) -> int:
    return sum(each.is_waiting for each in found)
