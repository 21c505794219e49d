"""Processes that speak gRPC with clients, for the one that has the store open.

A call costs gRPC many times what the store needs for it, and one Python process uses one core. So
with `server.workers` above 1 so many fronts (`front`) share the port; each hands its calls, as
bytes, to the owner of the store over a pair of Unix sockets (`frames`). The owner serves them as if
they had come to itself (`calls`), and looks after the fronts (`fleet`, `address`).

What is large to pull is read by the front itself, from mappings of the log, where the owner's plan
says (`plan_reader`). Otherwise a front knows nothing of the store, and this room as little: it must
start fast and stay small; what such reading takes is loaded when it is first asked for.
"""

from server.fronts.calls import FrontMethod
from server.fronts.fleet import Fronts

__all__ = ["FrontMethod", "Fronts"]
