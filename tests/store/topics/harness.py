"""Topics on an engine in memory, and a log of nothing but entries, for their tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq.consume_queue_store import KvConsumeQueueStore
from kvcq.state_store import KvStateStore
from kvcq.tables.keys import FAMILIES, STATE
from store.consume_queue import DispatchRequest
from store.state import StateView, TopicEnded, changes_of
from store.topics.table import Topics
from tests.support.fake_clock import FakeClock
from tests.support.memory_engine import MemoryEngine
from tests.support.stores import small_config

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from store.state import Entry

#: Of each record.
SIZE = 100


class Harness:
    """Topics as a store has them; `append` and `dispatch` stand for its log. `reopen` makes them
    anew, as opening does."""

    def __init__(self, root: Path, *, auto: bool = True) -> None:
        self.config = small_config(root, auto_create_topics=auto)
        engine = MemoryEngine((*FAMILIES, STATE))
        self.queues = KvConsumeQueueStore(engine)
        self.state = KvStateStore(engine)
        self.end = self.dispatched = 0
        self._appended: list[tuple[int, Sequence[Entry]]] = []
        self.topics = self.reopen()

    def reopen(self) -> Topics:
        self.dispatch()
        view = StateView(self.state, lambda: self.dispatched)
        self.topics = Topics(self.config, self.state, view, self.queues, FakeClock(), self.end)
        return self.topics

    def append(self, entries: Sequence[Entry], at: int | None = None) -> int:
        """They are in the log, in a record that begins there; returns where."""
        at = self.end if at is None else at
        assert at >= self.end, "the log grows"
        self.topics.deciding(entries, at)
        self.topics.view.append(entries, at, at + SIZE)
        self.topics.decided(is_appended=True)
        self._appended.append((at, entries))
        self.end = at + SIZE
        return at

    def dispatch(self) -> None:
        """All that was appended is in the rows."""
        while self._appended:
            at, entries = self._appended.pop(0)
            changes = changes_of(entries, at, self.state)
            self.state.apply(changes, at + SIZE)
            for entry in entries:
                if isinstance(entry, TopicEnded):
                    self.queues.delete_topic(entry.topic, at)
            self.topics.changed(changes, at)
            self.dispatched = at + SIZE

    def create(self, name: str, count: int = 2, at: int | None = None) -> None:
        self.append(self.topics.create([(name, count)]), at)
        self.dispatch()

    def delete(self, name: str, at: int | None = None) -> None:
        self.append(self.topics.end([name]), at)
        self.dispatch()

    def put(self, *requests: DispatchRequest) -> None:
        """Records of messages, dispatched."""
        self.dispatch()
        self.end = self.dispatched = requests[-1].physical_offset + SIZE
        self.queues.dispatch(requests, self.end)
        self.state.advance(self.end)


def request(topic: str, at: int, *light: tuple[str, int], queue_offset: int = 0) -> DispatchRequest:
    return DispatchRequest(topic, 1, queue_offset, at, SIZE, 7, 5, ("k",), light, True)
