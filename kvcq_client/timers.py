"""Delayed messages: what putting, recalling and listing them returns."""

from __future__ import annotations

import enum
from datetime import datetime, timedelta
from typing import NamedTuple

from kvcq_client.arguments import INT64_MAX, wrong_kind

#: When a message is delivered: at a time, or after a delay from when the server takes it.
DeliverAt = datetime | timedelta

#: RocketMQ's delays by level: DELAY_LEVELS[1] is a second, DELAY_LEVELS[18] two hours.
DELAY_LEVELS = (
    timedelta(0),
    *(timedelta(seconds=s) for s in (1, 5, 10, 30, *range(60, 601, 60), 1200, 1800, 3600, 7200)),
)


class Scheduled(NamedTuple):
    """A delayed message that was put."""

    handle: str  # for `recall`; valid as long as the message waits
    deliver_at_ms: int  # ms since 1970


class RecallOutcome(enum.Enum):
    """What a recall did with one handle. Neither is an error."""

    RECALLED = "recalled"  # the message will not be delivered
    #: Too late: it was delivered or recalled before, or its topic was deleted. Also returned if the
    #: response to a first attempt was lost, and the client's second attempt found it done.
    NOT_WAITING = "not waiting"


class Delayed(NamedTuple):
    """A message that waits for its time."""

    handle: str
    deliver_at_ms: int  # ms since 1970
    topic: str
    queue_id: int
    tag: str
    keys: tuple[str, ...]
    light_queues: tuple[str, ...]
    body_bytes: int


def wire_time(field: str, value: DeliverAt) -> tuple[str, int]:
    """The field of a request for it, and its value. Raises TypeError, ValueError."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"{field}: {value} has no time zone")
        milliseconds, name = round(value.timestamp() * 1000), "deliver_at_ms"
    elif isinstance(value, timedelta):
        milliseconds, name = round(value.total_seconds() * 1000), "delay_ms"
    else:
        raise wrong_kind(field, "a datetime or a timedelta", value)
    # A time in the past means now.
    return name, min(max(0, milliseconds), INT64_MAX)
