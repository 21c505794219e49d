"""Where data enters: the append with its checks and its waits, and batches that have numbers.

It holds the log, its flushing and the dispatch together, and says when a put is acknowledged.
"""

from store.puts.append_path import MOST_BODY_BYTES, AppendPath, Step, placed_in_batch
from store.puts.numbered_batches import FoundBatch, NumberedBatches

__all__ = [
    "MOST_BODY_BYTES",
    "AppendPath",
    "FoundBatch",
    "NumberedBatches",
    "Step",
    "placed_in_batch",
]
