"""Processes that speak gRPC with clients, for the one that has the store open.

A call costs gRPC many times what the store needs for it, and one Python process uses one core. So
with `server.workers` above 1 so many fronts (`front`) share the port; each hands its calls, as
bytes, to the owner of the store over a pair of Unix sockets (`frames`). The owner serves them as if
they had come to itself (`calls`), and looks after the fronts (`fleet`, `address`).

A front knows nothing of the store, and this room as little: it must start fast and stay small.
"""

from server.fronts.calls import FrontMethod
from server.fronts.fleet import Fronts

__all__ = ["FrontMethod", "Fronts"]
