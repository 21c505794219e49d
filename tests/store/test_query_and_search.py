"""Messages found by key, by time, and by their place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store.consume_queue import Boundary
from store.errors import InvalidArgumentError, MessageNotFoundError, UnknownTopicError
from store.message import Message
from tests.support.stores import bodies

if TYPE_CHECKING:
    from store.message_store import MessageStore
    from tests.support.fake_clock import FakeClock


def test_p12_query_by_key_pages_stably_while_others_write(
    store: MessageStore, clock: FakeClock
) -> None:
    for number in range(10):
        store.put([Message("T", b"%d" % number, keys=("k", f"k{number}"))])
        store.put([Message("U", b"other topic", keys=("k",))])
        clock.advance(0.5)
    found: list[bytes] = []
    cursor = None
    while True:
        page = store.query("T", "k", limit=3, cursor=cursor)
        found += bodies(page.records)
        if page.complete:
            break
        cursor = page.cursor
        if len(found) < 10:
            store.put([Message("T", b"%d" % (len(found) // 3 + 9), keys=("k",))])
    assert found == [b"%d" % number for number in range(len(found))]
    assert bodies(store.query("T", "k7").records) == [b"7"]
    assert store.query("T", "nothing").records == []
    with pytest.raises(UnknownTopicError):
        store.query("none", "k")
    with pytest.raises(InvalidArgumentError, match="limit"):
        store.query("T", "k", limit=0)
    with pytest.raises(InvalidArgumentError, match="begin_ms"):
        store.query("T", "k", begin_ms=-1)
    with pytest.raises(InvalidArgumentError, match="end_ms"):
        store.query("T", "k", end_ms=-1)
    with pytest.raises(InvalidArgumentError, match="cursor"):
        store.query("T", "k", cursor=b"x")


def test_query_by_key_within_times(store: MessageStore, clock: FakeClock) -> None:
    start = clock.now_ms()
    for number in range(5):
        store.put([Message("T", b"%d" % number, keys=("k",))])
        clock.advance(1)
    found = store.query("T", "k", begin_ms=start + 1000, end_ms=start + 3000)
    assert bodies(found.records) == [b"1", b"2", b"3"]  # inclusive
    assert bodies(store.query("T", "k", begin_ms=start + 3001).records) == [b"4"]


def test_p12_keys_with_one_java_hash_do_not_mix(store: MessageStore) -> None:
    store.put([Message("T", b"1", keys=("Aa",)), Message("T", b"2", keys=("BB",))])
    assert bodies(store.query("T", "Aa").records) == [b"1"]


def test_search_by_time(store: MessageStore, clock: FakeClock) -> None:
    start = clock.now_ms()
    for _ in range(3):
        store.put([Message("T", b"x")])
        clock.advance(2)
    for time_ms, lower, upper in (
        (start - 1, 0, 0),
        (start, 0, 0),
        (start + 1, 1, 0),
        (start + 4000, 2, 2),
        (start + 4001, 3, 2),
    ):
        assert store.search_time("T", 0, time_ms, Boundary.LOWER) == lower
        assert store.search_time("T", 0, time_ms, Boundary.UPPER) == upper
    with pytest.raises(UnknownTopicError):
        store.search_time("none", 0, 0, Boundary.LOWER)


def test_get_finds_records_alone(store: MessageStore) -> None:
    place = store.put([Message("T", b"x" * 200)]).placed[0].physical_offset
    assert len(store.get(place)) > 200
    for offset in (-1, place + 1, store.log.appended_offset, 1 << 50):
        with pytest.raises(MessageNotFoundError):
            store.get(offset)
    store.delete_topic("T")
    with pytest.raises(MessageNotFoundError, match="deleted"):
        store.get(place)
