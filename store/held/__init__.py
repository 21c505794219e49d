"""Held messages: they wait for their time (delayed messages) or for a decision (transactions).

A held message is a record of a system topic; its properties say where it will be put. A row of the
state says that it waits. Its delivery and the entry that deletes the row are one append, so it has
exactly one outcome after any crash. See store/docs/held.md.
"""

from store.held.deciding import Begin, Decide
from store.held.halves import (
    GROUP,
    MOST_TOGETHER,
    Check,
    Halves,
    Transaction,
)
from store.held.handing_back import HandBack
from store.held.handles import unpack_handle
from store.held.inherited import Inherited, InheritedHalf, InheritedTimer
from store.held.moving import RolledHalves
from store.held.readable import is_final
from store.held.records import (
    HELD_PROPERTIES,
    LIGHT_QUEUES,
    TIMER_DELIVER,
    TIMER_OUT,
    acceptable,
    again,
    first_place,
    number_of,
    read_places,
    target_of,
)
from store.held.rolling import Done, Rolling
from store.held.timers import (
    MOST_AHEAD_MS,
    MOST_LISTED,
    MOST_TIMERS,
    Recall,
    Timers,
    TimersSet,
    Waiting,
    too_far,
)
from store.held.transaction_ids import unpack_transaction_id

__all__ = [
    "GROUP",
    "HELD_PROPERTIES",
    "LIGHT_QUEUES",
    "MOST_AHEAD_MS",
    "MOST_LISTED",
    "MOST_TIMERS",
    "MOST_TOGETHER",
    "TIMER_DELIVER",
    "TIMER_OUT",
    "Begin",
    "Check",
    "Decide",
    "Done",
    "Halves",
    "HandBack",
    "Inherited",
    "InheritedHalf",
    "InheritedTimer",
    "Recall",
    "RolledHalves",
    "Rolling",
    "Timers",
    "TimersSet",
    "Transaction",
    "Waiting",
    "acceptable",
    "again",
    "first_place",
    "is_final",
    "number_of",
    "read_places",
    "target_of",
    "too_far",
    "unpack_handle",
    "unpack_transaction_id",
]
