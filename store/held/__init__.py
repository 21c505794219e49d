"""Messages that wait: for their time, as delayed ones, or for a decision.

One that waits is a record of a system topic, with what it is for in its properties; that it waits
is a row of the state. What it becomes is appended together with the entry that ends the row, so
there is one outcome, whatever crashes. See store/docs/held.md.
"""

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

__all__ = [
    "TIMER_DELIVER",
    "TIMER_OUT",
    "Done",
    "Kind",
    "Reads",
    "Rolling",
    "Target",
    "again",
    "check_may_wait",
    "delivered",
    "first_place",
    "moved",
    "number_of",
    "read_places",
    "target_of",
    "waiting",
]
