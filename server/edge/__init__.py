"""Where calls come in and end: let in, read, counted, decoded, answered, refused.

`edge` takes each call and ends it, `call_errors` with an error; `decoder` reads its request, and
`method` has it answered. The others say how many calls there may be (`call_gate`), what a request
may have (`request_limits`, `request_fields`) and how much memory all of them together
(`request_memory`); `call_info` is the call that a log line is about. `busy_poll` keeps the loop
awake for callers that are quick.
"""

from server.edge.busy_poll import BusyPoll, Pace
from server.edge.call_errors import batch_error, tell
from server.edge.call_gate import STREAMS, CallGate, CallKind
from server.edge.call_info import CallFilter, Context, inner_context, request_id_of
from server.edge.decoder import Requests
from server.edge.edge import Edge
from server.edge.method import Method
from server.edge.request_fields import MAX_CALLS, MAX_FILES, MAX_TOPICS
from server.edge.request_limits import request_limit
from server.edge.request_memory import SMALL_BYTES, UNREAD_BYTES, RequestMemory

__all__ = [
    "MAX_CALLS",
    "MAX_FILES",
    "MAX_TOPICS",
    "SMALL_BYTES",
    "STREAMS",
    "UNREAD_BYTES",
    "BusyPoll",
    "CallFilter",
    "CallGate",
    "CallKind",
    "Context",
    "Edge",
    "Method",
    "Pace",
    "RequestMemory",
    "Requests",
    "batch_error",
    "inner_context",
    "request_id_of",
    "request_limit",
    "tell",
]
