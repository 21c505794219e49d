"""Shared groups: receivers take messages, acknowledge them, or give them back for redelivery.

Rows of the state list the messages that a group has in flight (`store/state/windows.py`). Each
change is a record of the log; this room decides its content. See store/docs/groups.md.
"""

from store.groups.damage import DAMAGE
from store.groups.dead_letters import CARRIER, LETTER_OFFSET, DeadLetter
from store.groups.deliveries import Delivery, Outcome, Received
from store.groups.handles import is_handle
from store.groups.leases import Answered
from store.groups.letters import Redriven
from store.groups.limits import (
    MOST_ATTEMPT_ID,
    MOST_DELAY_MS,
    MOST_HANDLES,
    MOST_INVISIBLE_MS,
    MOST_LETTERS,
    MOST_LITE_QUOTA,
    MOST_RECEIVED,
)
from store.groups.order import hash_of
from store.groups.positions import (
    AtOffset,
    AtTime,
    Edge,
    SharedQueue,
    Where,
    offset_of,
)
from store.groups.receiving import Wish
from store.groups.shared import SharedGroups
from store.groups.turn import Turn

__all__ = [
    "CARRIER",
    "DAMAGE",
    "LETTER_OFFSET",
    "MOST_ATTEMPT_ID",
    "MOST_DELAY_MS",
    "MOST_HANDLES",
    "MOST_INVISIBLE_MS",
    "MOST_LETTERS",
    "MOST_LITE_QUOTA",
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
    "SharedGroups",
    "SharedQueue",
    "Turn",
    "Where",
    "Wish",
    "hash_of",
    "is_handle",
    "offset_of",
]
