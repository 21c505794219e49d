"""The edge of the server: calls are admitted, read, counted, decoded, answered, rejected.

`edge` handles each call, `call_errors` ends it with an error; `decoder` reads its request, and
`method` has it answered. The others limit the number of calls (`call_gate`), a request's content
(`request_limits`, `request_fields`) and the memory of all requests (`request_memory`); `call_info`
identifies the call of a log line. `busy_poll` keeps the loop awake for fast callers.
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
