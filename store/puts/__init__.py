"""Where data enters: the append with its checks and its waits, and batches that have numbers.
Changes of topics and committed offsets enter here, too: each is a record of the log.

It holds the log, its flushing and the dispatch together, and says when a put is acknowledged.
"""

from store.puts.append_path import MOST_BODY_BYTES, AppendPath, Step, placed_in_batch
from store.puts.committed_offsets import CommittedOffsets
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
    "placed_in_batch",
]
