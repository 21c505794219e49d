"""Topics, queues, groups and messages that end while a group has received from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store.errors import (
    UnknownGroupError,
    UnknownTopicError,
)
from store.message import Message
from tests.store.groups.test_shared import DONE, ENDED, LATE, acknowledge, put, receive, texts
from tests.support.rebuild import differences
from tests.support.stores import open_small

if TYPE_CHECKING:
    from pathlib import Path

    from store.message_store import MessageStore
    from tests.support.fake_clock import FakeClock


def test_light_queues_are_received_from_as_topics_are(
    store: MessageStore, clock: FakeClock
) -> None:
    store.groups.create("g")
    name = "%LMQ%$room$1"
    store.put([Message("T", b"a", light_queues=(name,)), Message("T", b"b")])
    got = receive(store, name, invisible_ms=1000)
    assert texts(got) == ["a"]
    clock.advance(1)
    (again,) = receive(store, name)
    assert acknowledge(store, [*got, again]) == [LATE, DONE]
    store.delete_topic(name)
    with pytest.raises(UnknownTopicError):
        receive(store, name)
    assert acknowledge(store, [again]) == [ENDED]
    store.put([Message("T", b"new", light_queues=(name,))])
    (fresh,) = receive(store, name)
    assert (texts([fresh]), fresh.queue_offset) == (["new"], 0)
    assert acknowledge(store, [again, fresh]) == [LATE, DONE]


def test_a_topic_made_again_ends_what_was_in_flight(store: MessageStore) -> None:
    store.groups.create("g")
    put(store, "old")
    (old,) = receive(store)
    store.delete_topic("T")
    assert acknowledge(store, [old]) == [ENDED]
    with pytest.raises(UnknownTopicError):
        receive(store)
    put(store, "new")
    (new,) = receive(store)
    assert (texts([new]), new.deliveries) == (["new"], 1)
    assert acknowledge(store, [old, new]) == [ENDED, DONE]


def test_a_group_that_is_deleted_begins_anew(store: MessageStore) -> None:
    store.groups.create("g")
    put(store, "a")
    (old,) = receive(store)
    store.delete_group("g")
    with pytest.raises(UnknownGroupError):
        acknowledge(store, [old])
    store.groups.create("g")
    assert acknowledge(store, [old]) == [LATE]
    assert [each.deliveries for each in receive(store)] == [1]


def test_what_the_topic_keeps_no_longer_is_done(store: MessageStore, clock: FakeClock) -> None:
    store.groups.create("g")
    put(store, *"abcdef")
    got = receive(store, max_messages=4, invisible_ms=1)
    store.keep("T", messages=3)  # d, e, f
    clock.advance(1)
    again = receive(store)
    assert texts(again) == [*"def"]
    assert acknowledge(store, [*got, *again]) == [LATE] * 4 + [DONE] * 3
    (row,) = store.tables.list_windows("g", None, 9)
    assert (row[2].in_flight, row[2].next_offset) == (0, 6)


@pytest.mark.parametrize("name", ["T", "%LMQ%l"])
def test_a_queue_that_is_made_again_while_a_turn_reads_is_looked_at_again(
    store: MessageStore, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.groups.create("g")
    message = Message("T", b"old", light_queues=("%LMQ%l",))
    store.put([message])
    pull = store.reads.pull
    left = [1]

    def pull_late(topic: str, queue_id: int, offset: int, **wishes: int) -> object:
        pulled = pull(topic, queue_id, offset, **wishes)  # type: ignore[arg-type]
        if left.pop() if left else False:
            store.delete_topic(name)
            store.put([message._replace(body=b"new")])
        return pulled

    monkeypatch.setattr(store.reads, "pull", pull_late)
    (got,) = receive(store, name)
    assert (texts([got]), got.queue_offset) == (["new"], 0)
    assert acknowledge(store, [got]) == [DONE]
    assert receive(store, name) == []


def test_a_group_that_ends_while_a_turn_reads_receives_nothing(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_small(tmp_path / "store", clock, auto_create_groups=False) as store:
        store.groups.create("g")
        put(store, "a")
        pull = store.reads.pull

        def pull_late(topic: str, queue_id: int, offset: int, **wishes: int) -> object:
            pulled = pull(topic, queue_id, offset, **wishes)  # type: ignore[arg-type]
            store.delete_group("g")
            return pulled

        monkeypatch.setattr(store.reads, "pull", pull_late)
        with pytest.raises(UnknownGroupError):
            receive(store)
        assert store.tables.list_windows("g", None, 9) == []
        assert differences(store) == []
