"""Topics: which exist, and which records belong to them.

Uses the state, and the protocols of `store.consume_queue`. Does not know how queues are derived.
"""

from store.topics.admission import Admission, DeadBelow, starts_of
from store.topics.ends import End
from store.topics.remembered import LiveTopics
from store.topics.table import QueueRules, Topics, TopicsNeededError

__all__ = [
    "Admission",
    "DeadBelow",
    "End",
    "LiveTopics",
    "QueueRules",
    "Topics",
    "TopicsNeededError",
    "starts_of",
]
