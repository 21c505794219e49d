"""The way of messages out of the store: pulls, also those that wait, and subscriptions.

`Reads` is what the services call. It takes requests from `wire`, and the store as it is open; a
`Receive` is one of other clients. `Shown` is a member of a shared group.
"""

from server.reads.members import Shown
from server.reads.reads import Reads
from server.reads.receives import Receive

__all__ = [
    "Reads",
    "Receive",
    "Shown",
]
