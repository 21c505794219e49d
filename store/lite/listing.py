"""Lists parents, and their lite topics with their state. The cost of a page depends only on its own
rows."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from store.errors import UnknownTopicError
from store.lite.names import no_parent, parts_of, prefix_of, queue_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.consume_queue import ConsumeQueueStore
    from store.lite.subscriptions import Subscriptions
    from store.log import StoreTimes
    from store.reads import ReadPath
    from store.state import Tables
    from store.topics import Topics


class LiteParent(NamedTuple):
    """A topic that has lite topics."""

    topic: str
    expiry_ms: int  # how long a lite topic may be idle; 0: forever
    lite_topics: int  # number of lite topics with messages, counted up to a limit
    has_more: bool  # the limit was reached
    clients: int  # number of clients of all its groups


class LiteTopic(NamedTuple):
    """The state of a lite topic."""

    name: str
    min_offset: int
    max_offset: int
    last_ms: int | None  # store time of its last message; None if that has left the log
    ends_ms: int | None  # when it will expire; None: never, or clients are subscribed to it
    clients: int  # number of clients that are subscribed to it by name


class LiteListing:
    """Lists parents and lite topics, page by page. Thread: any. Memory: a page."""

    def __init__(
        self,
        topics: Topics,
        tables: Tables,
        queues: ConsumeQueueStore,
        times: StoreTimes,
        subscriptions: Subscriptions,
        reads: ReadPath,
    ) -> None:
        """`tables`: at the dispatch point."""
        # Constant after construction.
        self._topics = topics
        self._tables = tables
        self._queues = queues
        self._times = times
        self._subscriptions = subscriptions
        self._reads = reads

    def parents(self, prefix: str, after: str, limit: int, most: int) -> list[LiteParent]:
        """Up to `limit` parents in name order, with names above `after`. Up to `most` lite topics
        of each are counted."""
        rows = self._tables.list_lite_parents(after, limit, prefix)
        return [self._parent(topic, expiry_ms, most) for topic, expiry_ms in rows]

    def parent(self, topic: str, most: int) -> LiteParent | None:
        """One parent; None if the topic is not a parent of lite topics."""
        expiry_ms = self._tables.lite_expiry_ms(topic)
        return None if expiry_ms is None else self._parent(topic, expiry_ms, most)

    def _parent(self, topic: str, expiry_ms: int, most: int) -> LiteParent:
        count = len(self._queues.list_names(prefix_of(topic), None, most + 1))
        clients = self._subscriptions.clients_of(topic)
        return LiteParent(topic, expiry_ms, min(count, most), count > most, clients)

    def names(self, topic: str, prefix: str, after: str, limit: int) -> list[str]:
        """Up to `limit` lite topics with messages whose names begin with `prefix` and are above
        `after`, ordered by length, then by bytes. Raises UnknownTopicError if the topic does not
        exist, InvalidArgumentError if it is not a parent of lite topics, whatever light queues are
        named as if it were."""
        whole = prefix_of(topic)
        self._topics.get(topic)
        if self._tables.lite_expiry_ms(topic) is None:
            raise no_parent(topic)
        queues = self._queues.list_names(
            whole + prefix, queue_of(topic, after) if after else None, limit
        )
        found = [parts_of(queue) for queue in queues]
        return [parts[1] for parts in found if parts is not None]

    def states(self, topic: str, names: Sequence[str]) -> list[LiteTopic]:
        """The state of these lite topics of the parent, without those deleted meanwhile."""
        expiry_ms = self._tables.lite_expiry_ms(topic) or 0
        found = []
        for name in names:
            with suppress(UnknownTopicError):
                found.append(self._state(topic, name, expiry_ms))
        return found

    def _state(self, topic: str, name: str, expiry_ms: int) -> LiteTopic:
        queue = queue_of(topic, name)
        ((low, high),) = self._reads.bounds([(queue, 0)])
        last_ms = last_stored_ms(self._queues, self._times, queue, high)
        clients = self._subscriptions.subscribed_to(topic, name)
        ends_ms = None
        if expiry_ms and not clients:
            ends_ms = self._times.now_ms() if last_ms is None else last_ms + expiry_ms
        return LiteTopic(name, low, high, last_ms, ends_ms, clients)


def last_stored_ms(
    queues: ConsumeQueueStore, times: StoreTimes, queue: str, end: int
) -> int | None:
    """Store time of the last message of the light queue, ms; None if there is none, or if it has
    left the log. `end`: the queue's next offset."""
    units = queues.read_units(queue, 0, end - 1, 1) if end else []
    return times.of(units[0][1].physical_offset, units[0][1].store_time_ms) if units else None
