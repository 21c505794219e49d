"""A store of messages: a commit log in mapped files, and what is derived from it.

What programs that embed one need as values stands here; `kvcq.open_store` opens it. The rooms, each
of which may use those before it:

* `base`: clocks, locks, steps on files: what knows nothing of messages;
* `format`: what lies in the files, as bytes;
* `log`: the files, the append, the walk over them, recovery, flushing, retention;
* `topics`: which exist, deletions, what a power loss took;
* `derive`: from the log to the queues;
* `puts` and `reads`: the way in and the way out, which do not know each other;
* `groups`: members that share the work of a group;
* `upkeep`: what runs beside them.

Above them is the facade, `message_store`, and `opening`, which puts a store together.
`consume_queue` and `metadata` are the protocols that a database keeps.
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
