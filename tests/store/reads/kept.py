"""Messages of topics that keep less than the log does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.message import Message

if TYPE_CHECKING:
    from store.message_store import MessageStore

HOUR_S = 3600.0
HOUR_MS = 3_600_000
BODY = 100


def put(store: MessageStore, count: int, topic: str = "T", queue_id: int = 0) -> None:
    store.put([Message(topic, b"x" * BODY, queue_id, keys=("k",)) for _ in range(count)])


def count(store: MessageStore) -> None:
    """What a job does every second."""
    store._services.kept_bytes.run()


def bounds(store: MessageStore, queue_id: int = 0, topic: str = "T") -> tuple[int, int]:
    low, high = store.bounds([(topic, queue_id)])[0]
    return low, high


def record_size(store: MessageStore) -> int:
    return store.queues.read_units("T", 0, 0, 1)[0][1].record_size


def seen(store: MessageStore) -> list[int]:
    """Queue offsets of all messages that a consumer of the first queue gets."""
    low, _ = bounds(store)
    return store.pull("T", 0, low, max_messages=10_000).queue_offsets
