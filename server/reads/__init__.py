"""Reads: pulls, including waiting ones, receives, and subscriptions.

Services call `Reads`, which takes requests from `wire`, and the open store; a `Receive` is one of
other clients. `Shown` is a member of a shared group.
"""

from server.reads.members import Shown
from server.reads.reads import Reads
from server.reads.receives import Receive

__all__ = [
    "Reads",
    "Receive",
    "Shown",
]
