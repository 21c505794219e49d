"""A message store: a commit log in memory-mapped files, and everything derived from it.

This module exports the values that programs with an embedded store need; `kvcq.open_store` opens a
store. The rooms, each of which may only use those before it:

* `base`: clocks, locks, file operations, and whatever else knows nothing of messages;
* `format`: the byte layouts of the files;
* `log`: the files, the append, the walk over them, recovery, flushing, retention;
* `topics`: which topics exist, deletions, what a power loss took;
* `derive`: from the log to the queues;
* `puts` and `reads`: writing and reading, which do not know each other;
* `groups`: members that share the work of a group;
* `upkeep`: periodic work beside them.

Above them are the facade, `message_store`, and `opening`, which assembles a store. `consume_queue`
and `metadata` are the protocols that a database implements.
"""

from store.config import FlushMode, StoreConfig
from store.consume_queue import Boundary, Bounds
from store.errors import StoreError
from store.message import Appended, KeyQueryPage, Message, Placed, PullStatus, StoredMessage

__all__ = [
    "Appended",
    "Boundary",
    "Bounds",
    "FlushMode",
    "KeyQueryPage",
    "Message",
    "Placed",
    "PullStatus",
    "StoreConfig",
    "StoreError",
    "StoredMessage",
]
