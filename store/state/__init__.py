"""State: topics, groups and their offsets, as records of the log and as rows made of them.

Each change is an entry of a record of the state topic. Dispatch turns entries into rows; the rows
of a snapshot and the records behind it give the same rows again. Uses format and base.
"""

from store.state.changes import Changes, changes_of
from store.state.entries import (
    MOST_MADE,
    STATE_TOPIC,
    Committed,
    CorruptStateError,
    Entry,
    GroupEnded,
    GroupMade,
    LatestLooked,
    TopicEnded,
    TopicKeeps,
    TopicsMade,
    pack_entries,
    unpack_entries,
)
from store.state.rows import (
    CorruptRowError,
    Rows,
    dead_key,
    kept_key,
    offset_key,
    pack_kept,
    pack_offset,
    pack_topic,
    topic_key,
    unpack_kept,
    unpack_topic,
)
from store.state.store import Snapshots, StateStore
from store.state.tables import Tables
from store.state.view import StateView

__all__ = [
    "MOST_MADE",
    "STATE_TOPIC",
    "Changes",
    "Committed",
    "CorruptRowError",
    "CorruptStateError",
    "Entry",
    "GroupEnded",
    "GroupMade",
    "LatestLooked",
    "Rows",
    "Snapshots",
    "StateStore",
    "StateView",
    "Tables",
    "TopicEnded",
    "TopicKeeps",
    "TopicsMade",
    "changes_of",
    "dead_key",
    "kept_key",
    "offset_key",
    "pack_entries",
    "pack_kept",
    "pack_offset",
    "pack_topic",
    "topic_key",
    "unpack_entries",
    "unpack_kept",
    "unpack_topic",
]
