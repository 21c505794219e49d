"""From the log to the queues and the state: dispatch behind the appender, and online repair.

It uses the log, topics, state, and the protocols of `store.consume_queue`.
"""

from store.derive.kept_bytes import KeptBytes
from store.derive.repair import QueueRepair, Rebuilt
from store.derive.reput import SLICE_ROWS, ReputService
from store.derive.state_applier import StateApplier
from store.derive.superseded import CHUNK, MOST_QUEUES, Superseded

__all__ = [
    "CHUNK",
    "MOST_QUEUES",
    "SLICE_ROWS",
    "KeptBytes",
    "QueueRepair",
    "Rebuilt",
    "ReputService",
    "StateApplier",
    "Superseded",
]
