"""Held messages: they wait for their time (delayed messages) or for a decision (transactions).

A held message is a record of a system topic; its properties say where it will be put. A row of the
state says that it waits. Its delivery and the entry that deletes the row are one append, so it has
exactly one outcome after any crash. See store/docs/held.md.
"""

from store.held.deciding import Begin, Decide
from store.held.half_rolling import RolledHalves
from store.held.halves import (
    GROUP,
    MOST_IMMUNITY_MS,
    MOST_TOGETHER,
    Check,
    Decided,
    Halves,
    Transaction,
)
from store.held.handing_back import HandBack, HandedBack
from store.held.handles import unpack_handle
from store.held.inherited import Inherited, InheritedHalf, InheritedTimer
from store.held.readable import Readable, is_final, read_each
from store.held.reads import Reads
from store.held.records import (
    HELD_PROPERTIES,
    LIGHT_QUEUES,
    TIMER_DELIVER,
    TIMER_OUT,
    Target,
    acceptable,
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
    too_far,
)
from store.held.transaction_ids import unpack_transaction_id

__all__ = [
    "GROUP",
    "HELD_PROPERTIES",
    "LIGHT_QUEUES",
    "MOST_AHEAD_MS",
    "MOST_IMMUNITY_MS",
    "MOST_LISTED",
    "MOST_TIMERS",
    "MOST_TOGETHER",
    "TIMER_DELIVER",
    "TIMER_OUT",
    "Begin",
    "Check",
    "Decide",
    "Decided",
    "Done",
    "Halves",
    "HandBack",
    "HandedBack",
    "Inherited",
    "InheritedHalf",
    "InheritedTimer",
    "Kind",
    "Readable",
    "Reads",
    "Recall",
    "Recalled",
    "RolledHalves",
    "Rolling",
    "Target",
    "Timers",
    "TimersSet",
    "Transaction",
    "Waiting",
    "WaitingPage",
    "acceptable",
    "again",
    "check_may_wait",
    "delivered",
    "first_place",
    "is_final",
    "moved",
    "number_of",
    "read_each",
    "read_places",
    "target_of",
    "too_far",
    "unpack_handle",
    "unpack_transaction_id",
    "waiting",
]
