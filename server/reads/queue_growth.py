"""Watchers of queues that grow or are deleted: parked pulls and subscriptions.

The store's listener runs on a store thread for every batch, and does next to nothing unless there
are watchers. Watchers are level-triggered: when woken they read the queue again. So a spurious
wake-up costs a read, and none is lost as long as they watch before they read.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

from server.in_turns import in_turns
from store.consume_queue import queues_of

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from store.consume_queue import DispatchRequest

#: Topic and queue id; a light queue is (its name, 0).
QueueKey = tuple[str, int]
#: As the queue id of a key that is watched: all queues of the topic.
ANY_QUEUE = -1
if TYPE_CHECKING:
    Watcher = Callable[[QueueKey], None]


class QueueGrowth:
    """Watchers by queue. Owned by the event loop's thread, except `on_growth`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Nearly all queues have one: a set for each would take 216 bytes.
        self._watchers: dict[QueueKey, Watcher | set[Watcher]] = {}
        self._whole_topics: set[QueueKey] = set()  # those of these keys that are ANY_QUEUE
        self._lock = threading.Lock()
        # Guarded by _lock.
        self._grown: set[QueueKey] = set()
        self._wake_is_due = False
        self._closed = False

    def watch(self, key: QueueKey, watcher: Watcher) -> None:
        """Call `watcher` in the loop after each change of the queue, until `unwatch`.
        Repeatable."""
        if key[1] == ANY_QUEUE:
            self._whole_topics.add(key)
        found = self._watchers.setdefault(key, watcher)
        if isinstance(found, set):
            found.add(watcher)
        elif found != watcher:
            self._watchers[key] = {found, watcher}

    def unwatch(self, key: QueueKey, watcher: Watcher) -> None:
        """Stop watching; leaves nothing behind. Repeatable."""
        found = self._watchers.get(key)
        if isinstance(found, set):
            found.discard(watcher)
        if not found or found == watcher:
            self._watchers.pop(key, None)
            self._whole_topics.discard(key)

    @property
    def watched_queues(self) -> int:
        """Number of watched queues; all queues of a topic count as one."""
        return len(self._watchers)

    def on_growth(self, requests: Sequence[DispatchRequest]) -> None:
        """The store's listener. Any thread; wakes the loop once for many batches."""
        if self._watchers:
            self.changed(queues_of(requests))

    def changed(self, keys: Iterable[QueueKey]) -> None:
        """These queues grew, or were deleted. Any thread, like `on_growth`."""
        # Membership tests on a dict that the loop changes are atomic under the interpreter lock.
        # A watcher that comes after the test reads the queue itself.
        watched, whole = self._watchers, self._whole_topics
        hits: set[QueueKey] = set()
        for key in keys:
            if key in watched:
                hits.add(key)
            if whole and (of_topic := (key[0], ANY_QUEUE)) in whole:
                hits.add(of_topic)
        if not hits:
            return
        with self._lock:
            self._grown.update(hits)
            if self._wake_is_due or self._closed:
                return
            self._wake_is_due = True
            self._loop.call_soon_threadsafe(self._wake)

    def close(self) -> None:
        """No wake-up reaches the loop after this."""
        with self._lock:
            self._closed = True

    def _wake(self) -> None:
        with self._lock:
            grown, self._grown = self._grown, set()
            self._wake_is_due = False
        in_turns(self._woken(grown))

    def _woken(self, grown: Iterable[QueueKey]) -> Iterator[Callable[[], None]]:
        for key in grown:
            found = self._watchers.get(key, set())
            if not isinstance(found, set):
                yield partial(found, key)
                continue
            for watcher in tuple(found):
                if watcher in found:  # still: this takes several turns
                    yield partial(watcher, key)
