"""Topics: which exist, which records still live after a deletion, and what a power loss took.

It uses the log for what can be found there alone, and the metadata protocol for the rows. It knows
nothing of how queues are derived.
"""

from store.topics.admission import Admission, dead_light_of, starts_of
from store.topics.committed import cut_committed
from store.topics.deletion import Deletions
from store.topics.live_topics import LiveTopics
from store.topics.lost_topics import LostTopics
from store.topics.table import QueueRules, Topics

__all__ = [
    "Admission",
    "Deletions",
    "LiveTopics",
    "LostTopics",
    "QueueRules",
    "Topics",
    "cut_committed",
    "dead_light_of",
    "starts_of",
]
