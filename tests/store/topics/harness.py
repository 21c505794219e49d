"""Topics on engines in memory, for their tests and those of deletions."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from kvcq.consume_queue_store import KvConsumeQueueStore
from kvcq.metadata_store import MetadataStore
from kvcq.tables.keys import FAMILIES
from store.consume_queue import DispatchRequest
from store.log.watermark import Watermark
from store.topics.table import Topics
from tests.support.fake_clock import FakeClock
from tests.support.memory_engine import MemoryEngine
from tests.support.stores import small_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from store.log import CommitLog
    from store.log.queue_offsets import QueueKey


class Appends:
    """An append path whose log ends there, and is dispatched."""

    def __init__(self, end: int, during: Callable[[], None] = lambda: None) -> None:
        self.log = cast("CommitLog", SimpleNamespace(hot_queues=self, appended_offset=end))
        self.dispatched = Watermark("dispatched", end)
        self.forgotten: list[QueueKey] = []
        self._during = during

    def forget(self, keys: Iterable[QueueKey]) -> None:
        self.forgotten += keys

    def held(self) -> AbstractContextManager[None]:
        return nullcontext()

    def drain(self, end: int) -> None:
        assert end == self.log.appended_offset
        self._during()


class Harness:
    """Topics on engines in memory; `reopen` makes them anew, as opening does."""

    def __init__(self, root: Path, *, auto: bool = True) -> None:
        self.config = small_config(root, auto_create_topics=auto)
        self.metadata = MetadataStore(MemoryEngine())
        self.queues = KvConsumeQueueStore(MemoryEngine(FAMILIES))
        self.topics = self.reopen()

    def reopen(self) -> Topics:
        self.topics = Topics(self.config, self.metadata, self.queues, FakeClock())
        return self.topics

    def delete(self, name: str, below: int) -> None:
        self.topics.deletions.delete([name], self.topics.queue_count, Appends(below))


def request(topic: str, at: int, *light: tuple[str, int], queue_offset: int = 0) -> DispatchRequest:
    return DispatchRequest(topic, 1, queue_offset, at, 100, 7, 5, ("k",), light, True)
