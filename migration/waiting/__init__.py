"""Finds messages that a RocketMQ broker has not delivered yet, in its topics and files.

`names.py` lists the topics; `broker_log.py` reads them, in one walk or from an open store;
`found.py` finds messages that still wait; `popped.py` finds messages in flight, and the groups that
receive them; `timer_files.py` reads and writes the timer's files; `marks.py` reads the broker's
positions. Changes nothing in a store.
"""

from migration.waiting.broker_log import OpenLog, Watched
from migration.waiting.found import (
    Found,
    due_of,
    find_delayed,
    find_halves,
    find_timers,
    message_of,
)
from migration.waiting.marks import delivered_delayed, done_below
from migration.waiting.names import (
    GIVEN_UP_TOPIC,
    HALF_GROUP,
    HALF_TOPIC,
    RETRY_TOPICS,
    REVIVE_GROUP,
    REVIVE_TOPICS,
)
from migration.waiting.popped import (
    InFlight,
    find_in_flight,
    popping_groups,
    retry_topics_of,
    seen_groups,
)
from migration.waiting.timer_files import TimerFiles, read_timer_files, write_timer_files

__all__ = [
    "GIVEN_UP_TOPIC",
    "HALF_GROUP",
    "HALF_TOPIC",
    "RETRY_TOPICS",
    "REVIVE_GROUP",
    "REVIVE_TOPICS",
    "Found",
    "InFlight",
    "OpenLog",
    "TimerFiles",
    "Watched",
    "delivered_delayed",
    "done_below",
    "due_of",
    "find_delayed",
    "find_halves",
    "find_in_flight",
    "find_timers",
    "message_of",
    "popping_groups",
    "read_timer_files",
    "retry_topics_of",
    "seen_groups",
    "write_timer_files",
]
