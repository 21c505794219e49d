"""Stores that are backed up, and what is in a store, for comparing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kvcq.consume_queue_store import KvConsumeQueueStore
from store.format import unpack_record
from store.message import Message
from tests.support.checked import assert_whole
from tests.support.fake_clock import FakeClock
from tests.support.stores import open_small

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from store.message_store import MessageStore

TOPICS = ("T0", "T1")
LIGHT = "%LMQ%a"


@pytest.fixture
def clock() -> FakeClock:
    """For a `conftest.py` to name, as `store`."""
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[MessageStore]:
    """An open store with 80 batches."""
    with open_small(tmp_path / "store", clock) as found:
        put_some(found, clock, 80)
        yield found


def queues_of(store: MessageStore) -> KvConsumeQueueStore:
    """The database with all queues of a plain store."""
    assert isinstance(store.queues, KvConsumeQueueStore)
    return store.queues


def put_some(store: MessageStore, clock: FakeClock, count: int, size: int = 500) -> None:
    """That many batches of four messages, a second apart."""
    for _ in range(count):
        clock.advance(1)
        at = store.log.appended_offset
        store.put(
            [
                Message(
                    TOPICS[number % 2],
                    f"{at}-{number}".encode().ljust(size),
                    queue_id=number // 2,
                    keys=(f"k{at}",),
                    light_queues=(LIGHT,) if number == 0 else (),
                )
                for number in range(4)
            ]
        )


def bodies(store: MessageStore) -> dict[tuple[str, int], list[tuple[int, bytes]]]:
    """Queue offset and body of every message that can be read, by queue."""
    found: dict[tuple[str, int], list[tuple[int, bytes]]] = {}
    after: str | None = None
    names: list[tuple[str, int]] = []
    while page := store.list_topics("", after, 100):
        after = page[-1].name
        names += [(topic.name, queue) for topic in page for queue in range(topic.queue_count)]
    names += [(name, 0) for name in store.list_light_queues("", None, 100)]
    for name, queue in names:
        [(at, end)] = store.bounds([(name, queue)])
        found[name, queue] = []
        while at < end:
            pulled = store.pull(name, queue, at, max_messages=1000)
            for number, record in enumerate(pulled.records):
                found[name, queue].append((at + number, bytes(unpack_record(record).body)))
            at = pulled.next_offset
    return {queue: rows for queue, rows in found.items() if rows}


def opened(root: Path, clock: FakeClock) -> dict[tuple[str, int], list[tuple[int, bytes]]]:
    """What a stopped store has: it is whole before it is opened, and after."""
    assert_whole(root)
    with open_small(root, FakeClock(clock.now_ms())) as store:
        found = bodies(store)
    assert_whole(root)
    return found
