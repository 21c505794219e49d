"""Messages that a RocketMQ broker keeps in topics of its own until it delivers them.

Taken over they are ordinary messages of those topics: nothing here delivers, fires or commits them.

| topic                    | holds                                                          |
|--------------------------|----------------------------------------------------------------|
| SCHEDULE_TOPIC_XXXX      | delayed messages, a queue for each level; what was delivered   |
|                          | stays, up to the offset in `config/delayOffset.json`           |
| rmq_sys_wheel_timer      | timer messages; the timer's own files say which have fired     |
| RMQ_SYS_TRANS_HALF_TOPIC | half messages of transactions; those that ended are named in   |
|                          | another topic                                                  |

Source: RocketMQ 5.5, ScheduleMessageService, TimerMessageStore, TransactionalMessageUtil.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from migration.broker_config import delivered_offsets
from store.format import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from pathlib import Path

    from migration.plan.log_survey import LogSurvey

TIMER_TOPIC = "rmq_sys_wheel_timer"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
_KINDS = (
    ("delayed messages", SCHEDULE_TOPIC),
    ("timer messages", TIMER_TOPIC),
    ("half messages of transactions", HALF_TOPIC),
)


class HeldBack(NamedTuple):
    """Messages of one kind in the log."""

    kind: str
    topic: str
    records: int  # in the log, delivered ones included
    waiting: int | None  # not delivered yet; None where only the broker can tell

    def __str__(self) -> str:
        waiting = "some may not be delivered yet"
        if self.waiting is not None:
            waiting = f"{self.waiting} not delivered yet"
        return f"{self.records} {self.kind} in {self.topic}, {waiting}"


def held_back(root: Path, log: LogSurvey) -> tuple[HeldBack, ...]:
    """Of each kind that the log has. Raises StoreFormatError for a damaged delayOffset.json."""
    found = []
    for kind, topic in _KINDS:
        runs = [(queue_id, log.queues.last((topic, queue_id))) for queue_id in log.ids_of(topic)]
        records = sum(run.count for _, run in runs)
        if not records:
            continue
        waiting = None
        if topic == SCHEDULE_TOPIC:
            delivered = delivered_offsets(root)
            waiting = sum(
                min(run.count, max(0, run.next_offset - delivered.get(queue_id + 1, 0)))
                for queue_id, run in runs
            )
        found.append(HeldBack(kind, topic, records, waiting))
    return tuple(found)
