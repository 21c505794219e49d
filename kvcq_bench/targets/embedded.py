"""A store in this process as target: without gRPC, with queues in RocksDB or in files."""

from __future__ import annotations

import os
from time import perf_counter
from typing import TYPE_CHECKING, Any

from kvcq.opening import open_store
from kvcq_bench.errors import NotPossibleHereError
from kvcq_bench.machine import Used, disk_bytes, used_by
from kvcq_client import Bounds, Pulled, Queue, split_records
from store.config import FlushMode, StoreConfig
from store.message import Message as StoreMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from kvcq_client import Message, StoredMessage
    from store.message_store import MessageStore

_BATCH = 1024


def _setting(name: str, value: Any) -> Any:  # noqa: ANN401 - StoreConfig checks it
    """A value from a TOML file, converted to the type of StoreConfig."""
    if name == "flush_mode":
        return FlushMode(value)
    return tuple(value) if isinstance(value, list) else value


def _of_store(messages: Sequence[Message]) -> list[StoreMessage]:
    return [
        StoreMessage(
            message.topic,
            message.body,
            message.queue_id or 0,
            message.tag,
            tuple(message.keys),
            tuple(message.light_queues),
            message.properties,
            message.flag,
        )
        for message in messages
    ]


class EmbeddedWriter:
    """Puts on the calling thread, one list after the other."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._turn = 0

    def write(
        self, messages: Sequence[Message], on_done: Callable[[Mapping[int, Exception]], None]
    ) -> None:
        self._store.put(_of_store(messages))
        on_done({})

    def flush(self) -> None:
        """Does nothing: every put has waited for its result."""

    def close(self) -> None:
        """Does nothing: there is nothing to release."""


class EmbeddedTarget:
    """A MessageStore in this process."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, Any],
        opener: Callable[[StoreConfig], MessageStore] = open_store,
        name: str = "store in the process",
    ) -> None:
        self.name = name
        self.directory: Path | None = directory
        self._root = directory
        self._settings = dict(settings)
        self._opener = opener
        self._store = self._open()

    def _open(self) -> MessageStore:
        self._root.mkdir(parents=True, exist_ok=True)
        settings = {name: _setting(name, value) for name, value in self._settings.items()}
        return self._opener(StoreConfig(root=self._root / "store", **settings))

    def writer(self) -> EmbeddedWriter:
        return EmbeddedWriter(self._store)

    def put_later(self, messages: Sequence[Message], due_ms: Sequence[int]) -> None:
        self._store.timers.put(_of_store(messages), due_ms)

    def create_topics(self, topics: Mapping[str, int]) -> None:
        items = list(topics.items())
        for begin in range(0, len(items), 10_000):
            self._store.create_topics(items[begin : begin + 10_000])

    def bounds(self, queues: Sequence[Queue]) -> dict[Queue, Bounds]:
        found = self._store.bounds(queues)
        return {queue: Bounds(*one) for queue, one in zip(queues, found, strict=True)}

    def pull(self, queue: Queue, offset: int, max_messages: int) -> Pulled:
        pulled = self._store.pull(*queue, offset, max_messages=max_messages)
        return Pulled(
            split_records(b"".join(pulled.records.parts), pulled.queue_offsets, queue=queue),
            pulled.next_offset,
            pulled.min_offset,
            pulled.max_offset,
        )

    def read_to_end(
        self, starts: Mapping[Queue, int]
    ) -> Iterator[tuple[Queue, list[StoredMessage]]]:
        for queue, start in starts.items():
            at, end = start, start + 1
            while at < end:
                pulled = self.pull(queue, at, _BATCH)
                at, end = pulled.next_offset, pulled.max_offset
                if pulled.messages:
                    yield queue, pulled.messages

    def statistics(self) -> dict[str, float]:
        return self._store.statistics()

    def used(self) -> Used | None:
        return used_by([os.getpid()])

    def disk_bytes(self) -> dict[str, int]:
        return disk_bytes(self._root)

    def reopen(
        self,
        settings: Mapping[str, Any] | None = None,
        *,
        kill: bool = False,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> float:
        if kill:
            raise NotPossibleHereError("a store in this process cannot be killed alone")
        self._store.close()
        self._settings.update(settings or {})
        meanwhile()
        started = perf_counter()
        self._store = self._open()
        return perf_counter() - started

    def close(self) -> None:
        self._store.close()
