"""A message store: a commit log in memory-mapped files, and everything derived from it.

This module exports the values that programs with an embedded store need; `kvcq.open_store` opens a
store. The rooms, each of which may only use those before it:

* `base`: clocks, locks, file operations, and everything else that knows nothing of messages;
* `format`: the byte layouts of the files;
* `log`: the files, the append, the walk over them, recovery, flushing, retention;
* `state`: topics, groups and offsets, as records of the log and as rows;
* `topics`: which topics exist, and which records belong to them;
* `derive`: from the log to the queues and the state;
* `reads`, then `puts`: reading and writing;
* `held`: messages that wait for a time or a decision;
* `groups`: members that share the work of a group; `lite`: lite topics;
* `trace`: what became of a message;
* `upkeep`: periodic work, and the end of a store's life.

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
