"""Lists of lite topics, where each stands, and of the topics that they belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store.errors import InvalidArgumentError, UnknownTopicError
from store.lite import LiteParent, LiteTopic
from store.metadata import MessageType
from tests.store.lite.test_lite_topics import ADD, P, put, ready

if TYPE_CHECKING:
    from store.message_store import MessageStore
    from tests.support.fake_clock import FakeClock


def test_a_topic_that_is_not_there_has_no_list_of_lite_topics(store: MessageStore) -> None:
    with pytest.raises(UnknownTopicError):
        store.lite.listing.names("missing", "", "", 10)
    store.create_topics([(P, 1)])
    put(store, "a", "x")
    with pytest.raises(InvalidArgumentError, match=f"topic: '{P}' is not made for lite topics"):
        store.lite.listing.names(P, "", "", 10)
    store.lite.make(P)
    assert store.lite.listing.names(P, "", "", 10) == ["a"]
    assert store.lite.listing.names(P, "b", "", 10) == []


def test_a_lite_topic_says_where_it_stands(store: MessageStore, clock: FakeClock) -> None:
    ready(store)
    store.lite.make(P, expiry_ms=60_000)
    first_ms = clock.now_ms()
    put(store, "a", "x", "y")
    clock.advance(10)
    put(store, "b", "x")
    store.lite.sync("g", "c", ADD, ["b"])
    store.lite.sync("g", "d", ADD, ["b", "silent"])
    assert store.lite.listing.states(P, ["a", "never", "b"]) == [
        LiteTopic("a", 0, 2, first_ms, first_ms + 60_000, 0),
        LiteTopic("b", 0, 1, first_ms + 10_000, None, 2),
    ]
    store.lite.make(P)
    assert [one.ends_ms for one in store.lite.listing.states(P, ["a", "b"])] == [None, None]


def test_parents_are_listed_and_count_no_further_than_they_are_to(store: MessageStore) -> None:
    ready(store)
    for parent in ("pq", "other"):
        store.lite.make(parent, expiry_ms=90_000)
    store.create_topics([("plain", 1)])
    for name in ("a", "b", "c"):
        put(store, name, "x")
    store.lite.sync("g", "c", ADD, ["a"])
    listing = store.lite.listing
    assert listing.parents("", "", 9, 2) == [
        LiteParent("other", 90_000, 0, has_more=False, clients=0),
        LiteParent(P, 0, 2, has_more=True, clients=1),
        LiteParent("pq", 90_000, 0, has_more=False, clients=0),
    ]
    assert [one.topic for one in listing.parents("p", "", 9, 1)] == [P, "pq"]
    assert [one.topic for one in listing.parents("p", P, 9, 1)] == ["pq"]
    assert [one.topic for one in listing.parents("", "other", 1, 1)] == [P]
    assert listing.parent(P, 3) == LiteParent(P, 0, 3, has_more=False, clients=1)
    assert listing.parent("plain", 3) is None


@pytest.mark.parametrize("changed", [False, True])
def test_a_topic_for_lite_messages_is_a_parent(store: MessageStore, changed: bool) -> None:
    """However it became one: by kvcq lite create, or by its type as RocketMQ's tools make it."""
    store.create_topics([(P, 1)], types={} if changed else {P: MessageType.LITE})
    if changed:
        assert not store.lite.is_parent(P)
        store.take(P, MessageType.LITE)
    assert store.lite.expiry_ms(P) == 0
    assert [one.topic for one in store.lite.listing.parents("", "", 9, 1)] == [P]
    store.lite.make(P, expiry_ms=60_000)
    store.take(P, MessageType.NORMAL)
    store.take(P, MessageType.LITE)
    assert store.lite.expiry_ms(P) == 60_000
