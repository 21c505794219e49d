"""What goes over the wire: requests read, counted and decoded, answers and errors encoded.

`edge` takes each call and ends it; the others say what it may hold and how much of it there may be
(`call_gate`, `request_limits`, `request_fields`, `request_memory`, `put_limits`), and put values
into the words of the API and back (`messages_in`, `messages_out`, `fields`, `migration_values`,
`status`). It knows the values and errors of the store and of a migration, and neither of them open.
"""

from server.wire.batch_checksum import checksum_of
from server.wire.batch_topics import topics_of
from server.wire.call_errors import batch_error, tell
from server.wire.call_gate import CallGate, CallKind
from server.wire.call_info import CallFilter, Context, request_id_of
from server.wire.columns import Columns, Stored, columns_of
from server.wire.edge import Edge, Method, Requests
from server.wire.fields import (
    DEFAULT_PULL_BYTES,
    DEFAULT_PULL_MESSAGES,
    DEFAULT_QUERY_MESSAGES,
    MAX_PULL_MESSAGES,
    MAX_QUERY_MESSAGES,
    MAX_QUEUES,
    PAGE_BYTES,
    boundary_of,
    bounded,
    form_of,
    in_range,
    not_more,
    not_negative,
    page_size_of,
    queues_of,
)
from server.wire.messages_in import host_of_peer, message_in, request_in
from server.wire.messages_out import (
    batch_out,
    bounds_out,
    host_text,
    only_placed_out,
    placed_out,
    pulled_out,
    stored_out,
    topic_out,
)
from server.wire.migration_values import (
    differences_out,
    job_out,
    plan_out,
    routing_in,
    routing_out,
    status_out,
)
from server.wire.put_limits import (
    INLINE_PARTS,
    MAX_MESSAGES,
    Budget,
    TooMuchError,
    inline_budget,
    parts_of,
)
from server.wire.request_fields import MAX_CALLS, MAX_FILES, MAX_TOPICS
from server.wire.request_memory import SMALL_BYTES, UNREAD_BYTES, RequestMemory
from server.wire.status import row_of

__all__ = [
    "DEFAULT_PULL_BYTES",
    "DEFAULT_PULL_MESSAGES",
    "DEFAULT_QUERY_MESSAGES",
    "INLINE_PARTS",
    "MAX_CALLS",
    "MAX_FILES",
    "MAX_MESSAGES",
    "MAX_PULL_MESSAGES",
    "MAX_QUERY_MESSAGES",
    "MAX_QUEUES",
    "MAX_TOPICS",
    "PAGE_BYTES",
    "SMALL_BYTES",
    "UNREAD_BYTES",
    "Budget",
    "CallFilter",
    "CallGate",
    "CallKind",
    "Columns",
    "Context",
    "Edge",
    "Method",
    "RequestMemory",
    "Requests",
    "Stored",
    "TooMuchError",
    "batch_error",
    "batch_out",
    "boundary_of",
    "bounded",
    "bounds_out",
    "checksum_of",
    "columns_of",
    "differences_out",
    "form_of",
    "host_of_peer",
    "host_text",
    "in_range",
    "inline_budget",
    "job_out",
    "message_in",
    "not_more",
    "not_negative",
    "only_placed_out",
    "page_size_of",
    "parts_of",
    "placed_out",
    "plan_out",
    "pulled_out",
    "queues_of",
    "request_id_of",
    "request_in",
    "routing_in",
    "routing_out",
    "row_of",
    "status_out",
    "stored_out",
    "tell",
    "topic_out",
    "topics_of",
]
