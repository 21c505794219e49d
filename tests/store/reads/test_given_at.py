"""Offsets know in which queue of a name they were given: over deletions, expiry and restarts."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING

import pytest

from store.errors import DiskFullError, RecreatedQueueError, StoreError, UnknownTopicError
from store.format import unpack_record
from store.message import Message
from tests.support.checked import checked
from tests.support.seeds import seeds
from tests.support.stores import open_small

if TYPE_CHECKING:
    from pathlib import Path

    from store.message_store import MessageStore
    from store.reads import Pulled
    from tests.support.fake_clock import FakeClock

TOPIC, LIGHT = "T", "%LMQ%t"


def read(store: MessageStore, name: str, offset: int, given_at: int | None) -> Pulled:
    plan = store.reads.plan_pull(
        name, 0, offset, max_messages=3, max_bytes=1 << 20, tag_filter=None, given_at=given_at
    )
    return store.reads.read_planned(plan)


def put(store: MessageStore, generations: dict[str, int], count: int = 1) -> None:
    """Messages in both queues; a body says of which it is."""
    body = b"%d %d" % (generations[TOPIC], generations[LIGHT])
    store.put([Message(TOPIC, body.ljust(3000), 0, light_queues=(LIGHT,)) for _ in range(count)])


def roll(store: MessageStore, clock: FakeClock) -> None:
    """All that was put has left the log."""
    for _ in range(3):
        clock.advance(100 * 3600)
        store.put([Message("other", b"x" * 3000) for _ in range(60)])
        store.flush()
        store.expire()
    store.flush()


def generation_of(pulled: Pulled, name: str) -> set[int]:
    return {int(unpack_record(record).body.split()[name is LIGHT]) for record in pulled.records}


@pytest.mark.parametrize("seed", seeds(2, 6))
def test_an_offset_reads_its_own_queue_or_is_refused(
    tmp_path: Path, clock: FakeClock, seed: int
) -> None:
    """The oracle: a message says in its body in which life of its queue it was put."""
    rng = random.Random(seed)

    def opened() -> MessageStore:
        return open_small(tmp_path / "store", clock, default_queue_count=1, reserved_hours=1)

    store = opened()
    lives = {TOPIC: 0, LIGHT: 0}
    given: list[tuple[str, int, int | None, int]] = []  # name, offset, given_at, life
    refused = found = 0
    try:
        for _ in range(250):
            name = rng.choice((TOPIC, LIGHT))
            match rng.choice("pppppprrrrrdxo"):
                case "p":
                    put(store, lives, rng.randint(1, 6))
                case "r":
                    try:
                        pulled = read(store, name, rng.randint(0, 3), None)
                    except StoreError:
                        continue
                    given.append((name, pulled.next_offset, pulled.given_at, lives[name]))
                    given.append((name, pulled.max_offset, pulled.given_at, lives[name]))
                case "d":
                    try:
                        store.delete_topic(name)
                    except UnknownTopicError:
                        continue
                    lives[name] += 1
                case "x":
                    clock.advance(2 * 3600)
                    store.flush()
                    store.expire()
                case "o" if rng.random() < 0.3:
                    store.close()
                    store = opened()
            for name, offset, given_at, life in rng.sample(given, min(3, len(given))):
                try:
                    pulled = read(store, name, offset, given_at)
                except RecreatedQueueError:
                    assert life != lives[name], "it is the queue that gave it"
                    refused += 1
                except StoreError:
                    continue
                else:
                    # At its beginning nothing that is there is passed over; which queue of the
                    # name a light one is, is not told there once a process has ended.
                    begins = (0, pulled.min_offset) if name == LIGHT else (0,)
                    is_own = life == lives[name]
                    assert offset in begins or not pulled.max_offset or is_own
                    assert generation_of(pulled, name) <= {lives[name]}
                    found += len(pulled.records)
    finally:
        store.close()
    assert refused > 10
    assert found > 10


@pytest.mark.parametrize("name", [TOPIC, LIGHT])
def test_a_deletion_is_known_when_its_mark_and_all_that_was_read_have_expired(
    tmp_path: Path, clock: FakeClock, name: str
) -> None:
    with checked(open_small(tmp_path / "store", clock, default_queue_count=1)) as store:
        put(store, {TOPIC: 0, LIGHT: 0}, 5)
        before = read(store, name, 3, None)
        store.delete_topic(name)
        roll(store, clock)
        assert store.log.start_offset > (before.given_at or 0)
        put(store, {TOPIC: 1, LIGHT: 1}, 8)
        with pytest.raises(RecreatedQueueError, match="made again"):
            read(store, name, before.next_offset, before.given_at)


def test_a_deletion_without_room_leaves_what_is_known_of_the_one_before(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with checked(open_small(tmp_path / "store", clock, default_queue_count=1)) as store:
        put(store, {TOPIC: 0, LIGHT: 0}, 5)
        before = read(store, LIGHT, 3, None)
        store.delete_topic(LIGHT)
        put(store, {TOPIC: 0, LIGHT: 1}, 8)

        def full(*_messages: object, **_how: object) -> None:
            raise DiskFullError("no room for the record")

        with monkeypatch.context() as patch:
            patch.setattr(store.log, "append", full)
            with pytest.raises(DiskFullError):
                store.delete_topic(LIGHT)
        with pytest.raises(RecreatedQueueError):
            read(store, LIGHT, before.next_offset, before.given_at)
        with pytest.raises(RecreatedQueueError):
            store.commit_offsets("g", [(LIGHT, 0, before.next_offset)], [before.given_at])


@pytest.mark.parametrize("name", [TOPIC, LIGHT])
def test_a_queue_whose_messages_have_all_expired_is_the_same(
    tmp_path: Path, clock: FakeClock, name: str
) -> None:
    with checked(open_small(tmp_path / "store", clock, default_queue_count=1)) as store:
        put(store, {TOPIC: 0, LIGHT: 0}, 5)
        before = read(store, name, 3, None)
        assert before.next_offset == 5
        roll(store, clock)
        assert store.log.start_offset > (before.given_at or 0)
        put(store, {TOPIC: 0, LIGHT: 0}, 2)
        after = read(store, name, before.next_offset, before.given_at)
        assert after.queue_offsets == [5, 6]


def test_a_topic_made_again_while_it_is_read_is_noticed(tmp_path: Path, clock: FakeClock) -> None:
    """Bounds and units are looked up one after the other; the deletion comes in between."""
    with checked(open_small(tmp_path / "store", clock, default_queue_count=1)) as store:
        put(store, {TOPIC: 0, LIGHT: 0}, 5)
        before = read(store, TOPIC, 2, None)
        queues, read_places = store.queues, store.queues.read_places
        ended = threading.Event()

        def recreate() -> None:
            store.delete_topic(TOPIC)
            put(store, {TOPIC: 1, LIGHT: 0}, 8)
            ended.set()

        def read_late(*place: int) -> object:
            queues.read_places = read_places  # type: ignore[method-assign]
            threading.Thread(target=recreate).start()
            assert ended.wait(30)
            return read_places(*place)  # type: ignore[arg-type]

        for given_at in (before.given_at, None):
            queues.read_places = read_late  # type: ignore[method-assign,assignment]
            ended.clear()
            if given_at is not None:
                with pytest.raises(RecreatedQueueError):
                    read(store, TOPIC, 4, given_at)
                continue
            pulled = read(store, TOPIC, 4, None)
            assert read(store, TOPIC, pulled.next_offset, pulled.given_at).queue_offsets
