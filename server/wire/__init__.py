"""Converts between values and API messages.

`messages_in`, `messages_out`, `pulls_out`, `columns` and `migration_values` convert; `fields` and
`put_limits` limit a field's values and a put's size; `status` names errors. It uses the values and
errors of the store and of a migration, but no open store.
"""

from server.wire.batch_checksum import checksum_of
from server.wire.batch_topics import topics_of
from server.wire.columns import Columns, Stored, columns_of
from server.wire.fields import (
    DEFAULT_PULL_BYTES,
    DEFAULT_PULL_MESSAGES,
    DEFAULT_QUERY_MESSAGES,
    MAX_ACKNOWLEDGED,
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
from server.wire.jobs_out import job_out
from server.wire.lite_topics import lite_parent_out, lite_topic_out
from server.wire.messages_in import host_of_peer, message_in, request_in
from server.wire.messages_out import (
    batch_out,
    bounds_out,
    host_text,
    message_id_of,
    message_type_in,
    only_placed_out,
    put_out,
    stored_out,
    topic_out,
)
from server.wire.migration_values import (
    differences_out,
    plan_out,
    status_out,
)
from server.wire.pulls_out import Encoded, encode_pull
from server.wire.put_limits import (
    INLINE_PARTS,
    MAX_MESSAGES,
    MAX_SENT,
    Budget,
    TooMuchError,
    inline_budget,
    parts_of,
)
from server.wire.shared_groups import (
    EncodedDeliveries,
    dead_letter_out,
    encode_deliveries,
    of_settings,
    outcomes_out,
    queue_out,
    settings_in,
    settings_out,
    where_in,
)
from server.wire.status import INTERNAL_ROW, Refusal, refusal_of, rich_status, row_of
from server.wire.timers import delayed_in, recalls_out, waiting_out
from server.wire.trace import story_out
from server.wire.transactions import check_out, transaction_out

__all__ = [
    "DEFAULT_PULL_BYTES",
    "DEFAULT_PULL_MESSAGES",
    "DEFAULT_QUERY_MESSAGES",
    "INLINE_PARTS",
    "INTERNAL_ROW",
    "MAX_ACKNOWLEDGED",
    "MAX_MESSAGES",
    "MAX_PULL_MESSAGES",
    "MAX_QUERY_MESSAGES",
    "MAX_QUEUES",
    "MAX_SENT",
    "PAGE_BYTES",
    "Budget",
    "Columns",
    "Encoded",
    "EncodedDeliveries",
    "Refusal",
    "Stored",
    "TooMuchError",
    "batch_out",
    "boundary_of",
    "bounded",
    "bounds_out",
    "check_out",
    "checksum_of",
    "columns_of",
    "dead_letter_out",
    "delayed_in",
    "differences_out",
    "encode_deliveries",
    "encode_pull",
    "form_of",
    "host_of_peer",
    "host_text",
    "in_range",
    "inline_budget",
    "job_out",
    "lite_parent_out",
    "lite_topic_out",
    "message_id_of",
    "message_in",
    "message_type_in",
    "not_more",
    "not_negative",
    "of_settings",
    "only_placed_out",
    "outcomes_out",
    "page_size_of",
    "parts_of",
    "plan_out",
    "put_out",
    "queue_out",
    "queues_of",
    "recalls_out",
    "refusal_of",
    "request_in",
    "rich_status",
    "row_of",
    "settings_in",
    "settings_out",
    "status_out",
    "stored_out",
    "story_out",
    "topic_out",
    "topics_of",
    "transaction_out",
    "waiting_out",
    "where_in",
]
