"""Lite topics: light queues of a parent topic, for millions of sessions.

Nothing is stored for a lite topic except its queue. Subscriptions, and the set of lite topics that
may have messages to deliver, are in memory. See store/docs/lite.md.
"""

from store.lite.clients import Action, Synced
from store.lite.listing import LiteParent, LiteTopic
from store.lite.lite_topics import (
    LEAST_EXPIRY_MS,
    MOST_EXPIRY_MS,
    MOST_SYNCED,
    FromEnd,
    LiteTopics,
)
from store.lite.names import MOST_NAME, check_lite_topic, name_of, parts_of, queue_of

__all__ = [
    "LEAST_EXPIRY_MS",
    "MOST_EXPIRY_MS",
    "MOST_NAME",
    "MOST_SYNCED",
    "Action",
    "FromEnd",
    "LiteParent",
    "LiteTopic",
    "LiteTopics",
    "Synced",
    "check_lite_topic",
    "name_of",
    "parts_of",
    "queue_of",
]
