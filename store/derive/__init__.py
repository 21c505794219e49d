"""From the log to the queues: dispatch behind the appender, online repair, and where queues end.

It uses the log, topics, and the protocols of `store.consume_queue` and `store.metadata`.
"""

from store.derive.ends_reserve import EndsReserve
from store.derive.kept_bytes import KeptBytes
from store.derive.queue_ends import QueueEnds, noted_log_start
from store.derive.repair import QueueRepair, Rebuilt
from store.derive.reput import SLICE_ROWS, ReputService
from store.derive.superseded import CHUNK, MOST_QUEUES, Hidden, Superseded

__all__ = [
    "CHUNK",
    "MOST_QUEUES",
    "SLICE_ROWS",
    "EndsReserve",
    "Hidden",
    "KeptBytes",
    "QueueEnds",
    "QueueRepair",
    "Rebuilt",
    "ReputService",
    "Superseded",
    "noted_log_start",
]
