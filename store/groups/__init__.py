"""Groups that share their work: messages are received, acknowledged, given back, delivered again.

What a group has in flight is rows of the state (`store/state/windows.py`), and each change is a
record of the log. Here it is decided what such records say. See store/docs/groups.md.
"""

from store.groups.dead_letters import DeadLetter
from store.groups.deliveries import Delivery, Outcome, Received
from store.groups.handles import is_handle
from store.groups.letters import Redriven
from store.groups.limits import (
    MOST_ATTEMPT_ID,
    MOST_DELAY_MS,
    MOST_DESCRIBED,
    MOST_HANDLES,
    MOST_INVISIBLE_MS,
    MOST_LETTERS,
    MOST_RECEIVED,
)
from store.groups.positions import AtOffset, AtTime, Edge, ResetDone, SharedQueue, Where
from store.groups.shared import Answered, SharedGroups

__all__ = [
    "MOST_ATTEMPT_ID",
    "MOST_DELAY_MS",
    "MOST_DESCRIBED",
    "MOST_HANDLES",
    "MOST_INVISIBLE_MS",
    "MOST_LETTERS",
    "MOST_RECEIVED",
    "Answered",
    "AtOffset",
    "AtTime",
    "DeadLetter",
    "Delivery",
    "Edge",
    "Outcome",
    "Received",
    "Redriven",
    "ResetDone",
    "SharedGroups",
    "SharedQueue",
    "Where",
    "is_handle",
]
