"""What a topic keeps, by time, bytes and count, as every reader sees it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kvcq.errors import EngineDamagedError
from store.consume_queue import Boundary
from store.derive import kept_bytes as kept_module
from store.errors import (
    InvalidArgumentError,
    MessageNotFoundError,
    OffsetOutOfRangeError,
    TopicExistsError,
    UnknownTopicError,
)
from store.format import unpack_record
from store.format.batch_mark import BatchMark
from store.message import Message
from store.metadata import KEEP_ALL, Retention
from tests.store.reads.kept import HOUR_MS, HOUR_S, bounds, count, put, record_size, seen
from tests.support.checked import checked
from tests.support.stores import open_small

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from store.message_store import MessageStore
    from tests.support.fake_clock import FakeClock

YEAR_S = 365 * 86_400


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[MessageStore]:
    with checked(open_small(tmp_path / "store", clock)) as opened:
        opened.create_topics([("T", 2), ("all", 1)])
        yield opened


def test_a_numbered_batch_is_read_back_without_what_is_not_kept(store: MessageStore) -> None:
    batch = [Message(topic, b"x", 0) for topic in ("T", "all", "T")]
    store.append(batch, mark=BatchMark("p", 0, 3, 7, 3))

    def there() -> list[bool]:
        records = store.batch_records("p", 0)
        assert records is not None
        return [record is not None for record in records]

    assert there() == [True] * 3
    store.keep("T", messages=1)
    assert there() == [False, True, True]
    put(store, 1)
    assert there() == [False, True, False]
    store.keep("T", messages=0)
    assert there() == [True] * 3
    store.keep("T", messages=1)
    store.delete_topic("T")
    assert there() == [True] * 3, "as long as the log has it"


# --- count, time, bytes ------------------------------------------------------------------------


def test_the_last_messages_of_each_queue_are_kept(store: MessageStore) -> None:
    put(store, 30)
    put(store, 4, queue_id=1)
    store.keep("T", messages=10)
    assert (bounds(store, 0), bounds(store, 1)) == ((20, 30), (0, 4))
    put(store, 1)
    assert bounds(store) == (21, 31)
    assert seen(store) == list(range(21, 31))


def test_messages_are_kept_for_a_time(store: MessageStore, clock: FakeClock) -> None:
    store.keep("T", time_ms=HOUR_MS)
    for _ in range(4):
        put(store, 5)
        clock.advance(0.5 * HOUR_S)
    # Stored 2, 1.5, 1 and 0.5 hours ago.
    assert bounds(store) == (10, 20)
    clock.advance(0.001)
    assert bounds(store) == (15, 20)
    clock.advance(HOUR_S)
    assert bounds(store) == (20, 20)
    assert seen(store) == []
    put(store, 1)
    assert seen(store) == [20]


def test_a_clock_that_is_set_back_shows_nothing_again(
    store: MessageStore, clock: FakeClock
) -> None:
    store.keep("T", time_ms=HOUR_MS)
    put(store, 5)
    clock.advance(1.5 * HOUR_S)
    put(store, 5)
    assert bounds(store) == (5, 10)
    clock.jump(-HOUR_S)
    assert bounds(store) == (5, 10)


def test_a_message_of_next_year_is_kept_no_longer_than_others(
    store: MessageStore, clock: FakeClock
) -> None:
    store.keep("T", time_ms=HOUR_MS)
    clock.jump(YEAR_S)
    put(store, 1)
    assert bounds(store) == (0, 1)
    clock.jump(-YEAR_S)
    put(store, 1)
    assert bounds(store) == (0, 2)
    clock.advance(HOUR_S + 1)
    put(store, 1)
    assert bounds(store) == (2, 3)


def test_the_last_bytes_of_each_queue_are_kept(store: MessageStore) -> None:
    put(store, 30)
    size = record_size(store)
    store.keep("T", size_bytes=10 * size)
    bounds(store)
    count(store)
    assert bounds(store) == (20, 30)
    put(store, 5)
    assert bounds(store) == (20, 35)  # as it was counted last
    count(store)
    assert bounds(store) == (25, 35)
    store.keep("T", size_bytes=10 * size - 1)
    bounds(store)
    count(store)
    assert bounds(store) == (26, 35)
    assert seen(store) == list(range(26, 35))


def test_a_queue_that_cannot_be_read_holds_up_no_other(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for queue_id in range(2):
        put(store, 30, queue_id=queue_id)
    store.keep("T", size_bytes=10 * record_size(store))
    read_units = store.queues.read_units

    def damaged(topic: str, queue_id: int, start: int, count: int) -> object:
        if queue_id == 0:
            raise EngineDamagedError("planted")
        return read_units(topic, queue_id, start, count)

    monkeypatch.setattr(store.queues, "read_units", damaged)
    for queue_id in range(2):
        bounds(store, queue_id)
    with pytest.raises(EngineDamagedError):
        count(store)
    assert [bounds(store, queue_id) for queue_id in range(2)] == [(0, 30), (20, 30)]
    monkeypatch.undo()
    count(store)
    assert bounds(store) == (20, 30)


def test_one_message_stays_however_few_bytes_are_kept(store: MessageStore) -> None:
    put(store, 3)
    store.keep("T", size_bytes=1)
    bounds(store)
    count(store)
    assert bounds(store) == (2, 3)


def test_a_queue_that_is_long_is_counted_a_bit_at_a_time(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_module, "UNITS_A_RUN", 10)
    monkeypatch.setattr(kept_module, "_UNITS_A_READ", 4)
    put(store, 50)
    size = record_size(store)
    store.keep("T", size_bytes=20 * size)
    lows = [bounds(store)[0]]
    while lows[-1] < 30:
        count(store)
        lows.append(bounds(store)[0])
    assert lows == sorted(lows)
    assert len(lows) > 4
    count(store)
    assert bounds(store) == (30, 50)


def test_a_run_that_ends_between_counting_and_leaving_out_is_gone_on_with(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All units of the queue are a run: it was taken for counted, until its next message."""
    monkeypatch.setattr(kept_module, "UNITS_A_RUN", 12)
    put(store, 12)
    store.keep("T", size_bytes=10 * record_size(store))
    assert bounds(store) == (0, 12)
    count(store)
    count(store)
    assert bounds(store) == (2, 12)


def test_the_narrowest_limit_counts(store: MessageStore, clock: FakeClock) -> None:
    put(store, 10)
    clock.advance(2 * HOUR_S)
    put(store, 10)
    store.keep("T", time_ms=HOUR_MS, messages=15)
    assert bounds(store) == (10, 20)
    store.keep("T", messages=4)
    assert bounds(store) == (16, 20)
    store.keep("T", size_bytes=2 * record_size(store))
    bounds(store)
    count(store)
    assert bounds(store) == (18, 20)


def test_other_topics_and_light_queues_keep_all(store: MessageStore) -> None:
    store.put([Message("all", b"x", 0, light_queues=("%LMQ%a",)) for _ in range(9)])
    store.put([Message("T", b"x", 0, light_queues=("%LMQ%a",)) for _ in range(9)])
    store.keep("T", messages=1)
    assert bounds(store, 0, "all") == (0, 9)
    assert bounds(store, 0, "%LMQ%a") == (0, 18)
    assert len(store.pull("%LMQ%a", 0, 0).records) == 18


def test_light_queues_keep_what_is_set_for_the_beginning_of_their_names(
    tmp_path: Path, clock: FakeClock
) -> None:
    names = ("%LMQ%device-1", "%LMQ%device-vip-1", "%LMQ%other", "%LMQ%devic")
    with checked(open_small(tmp_path / "light", clock)) as store:
        for _ in range(5):
            store.put([Message("T", b"x", 0, light_queues=names)])
            clock.advance(HOUR_S)
        assert [bounds(store, 0, name) for name in names] == [(0, 5)] * 4
        limits = ("device-=2", "device-vip-=3.5", "=4")
        store.reconfigure(replace(store.config, light_hours=limits))
        # The last one is an hour old, the one before two, and so on.
        assert [bounds(store, 0, name) for name in names] == [(3, 5), (2, 5), (1, 5), (1, 5)]
        assert bounds(store) == (0, 5)
        with pytest.raises(OffsetOutOfRangeError):
            store.pull("%LMQ%device-1", 0, 2)
        assert len(store.pull("%LMQ%device-1", 0, 3).records) == 2
        store.reconfigure(replace(store.config, light_hours=("device-=2",)))
        assert [bounds(store, 0, name) for name in names] == [(3, 5), (3, 5), (0, 5), (0, 5)]
        clock.advance(9 * HOUR_S)
        assert bounds(store, 0, "%LMQ%device-1") == (5, 5)


def test_a_light_queue_made_again_begins_with_its_first_message(
    tmp_path: Path, clock: FakeClock
) -> None:
    name = "%LMQ%device-1"
    with checked(open_small(tmp_path / "light", clock, light_hours=("device-=2",))) as store:
        for _ in range(5):
            store.put([Message("T", b"x", 0, light_queues=(name,))])
            clock.advance(HOUR_S)
        assert bounds(store, 0, name) == (3, 5)
        for count in (2, 3, 5):
            store.delete_topic(name)
            store.put([Message("T", b"x", 0, light_queues=(name,))] * count)
            assert bounds(store, 0, name) == (0, count)


@pytest.mark.parametrize(
    "limits",
    [
        ("device-",),
        ("device-=",),
        ("device-=0",),
        ("device-=-1",),
        ("device-=1h",),
        ("device-=nan",),
        ("device-=1", "device-=2"),
        tuple(f"{number}=1" for number in range(101)),
    ],
)
def test_a_limit_of_light_queues_that_is_none_is_refused(
    limits: tuple[str, ...], tmp_path: Path
) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        open_small(tmp_path / "light", light_hours=limits)
    assert refused.value.field == "light_hours"
    assert not (tmp_path / "light").exists()


# --- every reader ------------------------------------------------------------------------------


def test_every_reader_sees_the_same_beginning(store: MessageStore, clock: FakeClock) -> None:
    begin_ms = clock.now_ms()
    for _ in range(10):
        put(store, 1)
        clock.advance(1)
    places = [unit.physical_offset for _, unit in store.queues.read_units("T", 0, 0, 10)]
    store.keep("T", messages=4)
    with pytest.raises(OffsetOutOfRangeError) as refused:
        store.pull("T", 0, 5)
    assert (refused.value.min_offset, refused.value.max_offset) == (6, 10)
    assert store.pull("T", 0, 6).min_offset == 6
    for boundary in Boundary:
        assert store.search_time("T", 0, begin_ms, boundary) == 6
    assert store.search_time("T", 0, begin_ms + 8000, Boundary.LOWER) == 8
    found = [unpack_record(each).queue_offset for each in store.query("T", "k").records]
    assert found == [6, 7, 8, 9]
    assert store.get(places[6])
    with pytest.raises(MessageNotFoundError, match="below offset 6"):
        store.get(places[5])
    assert store.bounds_in_log([("T", 0)]) == [(0, 10)]
    store.commit_offsets("g", [("T", 0, 0)])  # where a group stands is its own matter


# --- settings ----------------------------------------------------------------------------------


def test_what_is_not_given_stays(store: MessageStore) -> None:
    assert store.describe_topic("T").retention == KEEP_ALL
    store.keep("T", time_ms=HOUR_MS)
    topic = store.keep("T", messages=7)
    assert topic.retention == Retention(HOUR_MS, 0, 7)
    assert store.describe_topic("T") == topic
    assert store.keep("T", time_ms=0, messages=0).retention == KEEP_ALL


def test_a_topic_is_created_with_what_it_keeps(store: MessageStore) -> None:
    kept = Retention(messages=3)
    [made] = store.create_topics([("new", 1)], {"new": kept})
    assert made.retention == kept
    assert store.create_topics([("new", 1)]) == [made]
    assert store.create_topics([("new", 1)], {"new": kept}) == [made]
    with pytest.raises(TopicExistsError, match="another retention"):
        store.create_topics([("other", 1), ("new", 1)], {"new": Retention(messages=4)})
    with pytest.raises(UnknownTopicError):
        store.describe_topic("other")


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"time_ms": -1}, "retention_time_ms"),
        ({"size_bytes": -1}, "retention_bytes"),
        ({"messages": -5}, "retention_messages"),
        ({"time_ms": 73 * HOUR_MS}, "retention_time_ms"),  # the log keeps 72 hours
    ],
)
def test_limits_that_cannot_be_are_refused(
    store: MessageStore,
    settings: dict[str, Any],
    field: str,
) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        store.keep("T", **settings)
    assert refused.value.field == field
    assert store.describe_topic("T").retention == KEEP_ALL
    with pytest.raises(InvalidArgumentError) as refused:
        store.create_topics([("a", 1), ("b", 1)], {"b": Retention(time_ms=-1)})
    assert refused.value.field == "topics[1].retention.time_ms"
    with pytest.raises(UnknownTopicError):
        store.keep("none", messages=1)


def test_a_larger_limit_shows_what_is_still_there_or_lets_the_queue_grow(
    store: MessageStore, clock: FakeClock
) -> None:
    put(store, 10)
    clock.advance(2 * HOUR_S)
    put(store, 10)
    store.keep("T", time_ms=HOUR_MS)
    assert bounds(store) == (10, 20)
    store.keep("T", time_ms=3 * HOUR_MS)
    assert bounds(store) == (0, 20)
    size = record_size(store)
    store.keep("T", size_bytes=5 * size)
    bounds(store)
    count(store)
    assert bounds(store) == (15, 20)
    store.keep("T", size_bytes=7 * size)
    put(store, 3)
    for _ in range(2):
        bounds(store)
        count(store)
    assert bounds(store) == (16, 23)
