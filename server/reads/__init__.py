"""The way of messages out of the store: pulls, also those that wait, and subscriptions.

`Reads` is what the services call. It takes requests from `wire`, and the store as it is open.
"""

from server.reads.reads import Reads

__all__ = [
    "Reads",
]
