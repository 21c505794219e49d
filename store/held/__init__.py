"""Messages that wait: for their time, as delayed ones, or for a decision.

One that waits is a record of a system topic, with what it is for in its properties; that it waits
is a row of the state. What it becomes is appended together with the entry that ends the row, so
there is one outcome, whatever crashes. See store/docs/held.md.
"""

from store.held.readable import Readable, read_each
from store.held.reads import Reads
from store.held.records import (
    TIMER_DELIVER,
    TIMER_OUT,
    Target,
    again,
    check_may_wait,
    delivered,
    first_place,
    moved,
    number_of,
    read_places,
    target_of,
    waiting,
)
from store.held.rolling import Done, Kind, Rolling
from store.held.timers import (
    MOST_AHEAD_MS,
    MOST_LISTED,
    MOST_TIMERS,
    Recall,
    Recalled,
    Timers,
    TimersSet,
    Waiting,
    WaitingPage,
)

__all__ = [
    "MOST_AHEAD_MS",
    "MOST_LISTED",
    "MOST_TIMERS",
    "TIMER_DELIVER",
    "TIMER_OUT",
    "Done",
    "Kind",
    "Readable",
    "Reads",
    "Recall",
    "Recalled",
    "Rolling",
    "Target",
    "Timers",
    "TimersSet",
    "Waiting",
    "WaitingPage",
    "again",
    "check_may_wait",
    "delivered",
    "first_place",
    "moved",
    "number_of",
    "read_each",
    "read_places",
    "target_of",
    "waiting",
]
