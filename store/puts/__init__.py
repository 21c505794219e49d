"""Writes: the append with its checks and waits, and numbered batches. Changes of topics and
committed offsets are records of the log, and are written here as well.

It connects the log, its flushing and the dispatch, and defines when a put is acknowledged.
"""

from store.puts.append_path import MOST_BODY_BYTES, AppendPath, Step
from store.puts.committed_offsets import CommittedOffsets
from store.puts.naming import check_fit, placed_in_batch
from store.puts.numbered_batches import FoundBatch, NumberedBatches
from store.puts.topic_changes import TopicChanges

__all__ = [
    "MOST_BODY_BYTES",
    "AppendPath",
    "CommittedOffsets",
    "FoundBatch",
    "NumberedBatches",
    "Step",
    "TopicChanges",
    "check_fit",
    "placed_in_batch",
]
