"""Of each key the latest message is seen, whatever happens to the store in between."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.errors import (
    InvalidArgumentError,
    MessageNotFoundError,
    UnknownQueueError,
    UnknownTopicError,
)
from store.format import unpack_record
from store.message import Message, PullStatus
from store.reads import latest_messages
from store.state import Tables
from store.topics import ends
from tests.support.checked import checked
from tests.support.rebuild import differences
from tests.support.stores import open_small
from tests.support.tree import copy_open

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from store.message_store import MessageStore
    from store.reads import LatestKept
    from tests.support.fake_clock import FakeClock

DAY_S = 86_400.0
LIGHT = "%LMQ%state"


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[MessageStore]:
    with checked(open_small(tmp_path / "store", clock)) as opened:
        opened.create_topics([("T", 2)])
        yield opened
        assert differences(opened) == []


def put(store: MessageStore, *values: tuple[str, str]) -> None:
    """Messages of key and body, in the topic's first queue and in a light queue."""
    store.put(
        [
            Message("T", body.encode(), 0, keys=(key,) if key else (), light_queues=(LIGHT,))
            for key, body in values
        ]
    )


def keep(store: MessageStore, topic: str = "T", queue_id: int = 0) -> LatestKept:
    return store.maintenance.keep_latest(topic, queue_id, lambda _done, _total: None)


@pytest.mark.parametrize("topic", ["T", LIGHT])
@pytest.mark.parametrize("is_made_again", [False, True])
def test_nothing_is_hidden_in_what_was_deleted_while_it_was_looked_through(
    store: MessageStore, topic: str, is_made_again: bool
) -> None:
    put(store, ("k", "1"), ("k", "2"))
    put(store, ("k", "3"))

    def deleted(_done: int, _total: int) -> None:
        store.delete_topic(topic)
        if is_made_again:
            put(store, ("k", "new"), ("k", "newer"))

    with pytest.raises(UnknownTopicError):
        store.maintenance.keep_latest(topic, 0, deleted)
    assert store.maintenance.hidden_messages(topic, 0) == 0
    assert list(store.tables.latest_heads()) == []
    if is_made_again:
        assert keep(store, topic) == (2, 1)


@pytest.mark.parametrize("sys_flag", [0x4, 0xC])
def test_what_stands_in_no_queue_is_neither_hidden_nor_behind_its_begin(
    store: MessageStore, sys_flag: int
) -> None:
    # Its record says queue offset 0, which is that of another message.
    put(store, ("k", "0"))
    half = Message("T", b"half", 0, keys=("h",), sys_flag=sys_flag)
    at = store.log.appended_offset
    store.append([half])
    put(store, ("k", "1"), ("k", "2"))
    keys = ["h"] if sys_flag == 0x4 else []  # one that is rolled back is not in the index
    before = [len(store.query("T", key).records) for key in keys]
    keep(store)
    assert [len(store.query("T", key).records) for key in keys] == before == [1] * len(keys)
    store.keep("T", messages=1)
    assert [len(store.query("T", key).records) for key in keys] == before
    assert store.reads.lookups.is_kept(store.log.read_at(at), {})
    assert seen(store) == [(2, "2")]


def seen(store: MessageStore, topic: str = "T", *, max_messages: int = 32) -> list[tuple[int, str]]:
    """Offset and body of each message that a consumer gets, pull by pull."""
    found: list[tuple[int, str]] = []
    at, end = store.bounds([(topic, 0)])[0]
    while at < end:
        pulled = store.pull(topic, 0, at, max_messages=max_messages)
        assert pulled.next_offset > at
        bodies = [unpack_record(each).body.decode() for each in pulled.records]
        found += zip(pulled.queue_offsets, bodies, strict=True)
        at = pulled.next_offset
    return found


def test_the_latest_of_each_key_is_seen(store: MessageStore) -> None:
    put(store, ("a", "1"), ("b", "2"), ("a", "3"), ("", "4"), ("b", "5"), ("", "6"))
    assert keep(store) == (6, 2)
    assert seen(store) == [(2, "3"), (3, "4"), (4, "5"), (5, "6")]
    assert seen(store, max_messages=1) == seen(store)
    assert store.maintenance.hidden_messages("T", 0) == 2
    assert store.bounds([("T", 0)]) == [(0, 6)]
    assert len(seen(store, LIGHT)) == 6  # the light queue is another one
    keep(store, LIGHT)
    assert [offset for offset, _ in seen(store, LIGHT)] == [2, 3, 4, 5]


def test_what_comes_later_is_seen_until_the_next_time(store: MessageStore) -> None:
    put(store, ("a", "1"), ("a", "2"))
    keep(store)
    put(store, ("a", "3"), ("c", "4"))
    assert [body for _, body in seen(store)] == ["2", "3", "4"]
    assert keep(store) == (4, 2)
    assert [body for _, body in seen(store)] == ["3", "4"]
    assert keep(store) == (4, 2)


def test_every_reader_sees_the_same(store: MessageStore) -> None:
    put(store, ("a", "1"), ("a", "2"))
    places = [unit.physical_offset for _, unit in store.queues.read_units("T", 0, 0, 2)]
    keep(store)
    assert [unpack_record(each).body for each in store.query("T", "a").records] == [b"2"]
    assert store.get(places[1])
    with pytest.raises(MessageNotFoundError, match="a later message has its key"):
        store.get(places[0])
    pulled = store.pull("T", 0, 0, max_messages=1, tag_filter="other")
    assert (pulled.status, pulled.next_offset) == (PullStatus.NO_MATCH, 2)


def test_a_message_without_a_body_deletes_its_key(store: MessageStore, clock: FakeClock) -> None:
    put(store, ("a", "1"), ("b", "2"), ("a", ""))
    keep(store)
    assert [body for _, body in seen(store)] == ["2", ""]
    clock.advance(DAY_S)
    keep(store)
    assert [body for _, body in seen(store)] == ["2", ""]
    clock.advance(1)
    keep(store)
    assert [body for _, body in seen(store)] == ["2"]
    put(store, ("a", "again"))
    keep(store)
    assert [body for _, body in seen(store)] == ["2", "again"]


def test_what_deletes_its_key_with_a_stamp_of_next_year_goes_a_day_later(
    store: MessageStore, clock: FakeClock
) -> None:
    clock.jump(365 * DAY_S)
    put(store, ("a", ""))
    clock.jump(-365 * DAY_S)
    put(store, ("b", "2"))
    keep(store)
    assert [body for _, body in seen(store)] == ["", "2"]
    clock.advance(DAY_S + 1)
    keep(store)
    assert [body for _, body in seen(store)] == ["2"]


def test_it_outlives_a_restart_and_a_kill(tmp_path: Path, clock: FakeClock) -> None:
    with open_small(tmp_path / "store", clock) as store:
        put(store, ("a", "1"), ("b", "2"), ("a", "3"))
        keep(store)
        copy_open(tmp_path / "store", tmp_path / "killed")
    for name in ("store", "killed"):
        with checked(open_small(tmp_path / name, clock)) as store:
            assert [body for _, body in seen(store)] == ["2", "3"]
            assert store.maintenance.hidden_messages("T", 0) == 1
            assert differences(store) == []


def test_a_topic_made_anew_shows_all_that_is_its_own(store: MessageStore) -> None:
    put(store, ("a", "1"), ("a", "2"), ("a", "3"))
    keep(store)
    keep(store, LIGHT)
    store.delete_topic("T")
    store.delete_topic(LIGHT)
    assert list(Tables(store.state).latest_heads()) == []
    put(store, ("a", "4"), ("a", "5"), ("a", "6"))
    assert [body for _, body in seen(store)] == ["4", "5", "6"]
    assert [body for _, body in seen(store, LIGHT)] == ["4", "5", "6"]


def test_hidden_messages_of_what_is_not_idle_any_more_stay_hidden(store: MessageStore) -> None:
    put(store, ("a", "1"), ("a", "2"))
    keep(store, LIGHT)
    last_ends = store._topic_changes.last_ends([LIGHT])
    put(store, ("b", "3"))
    assert store._topic_changes.delete_idle({LIGHT: (2, last_ends[LIGHT])}) == 0
    assert [body for _, body in seen(store, LIGHT)] == ["2", "3"]
    assert store.maintenance.hidden_messages(LIGHT, 0) == 1


def test_what_stands_later_at_a_hidden_offset_is_seen(tmp_path: Path, clock: FakeClock) -> None:
    # As a log has it where the job looked at the queue, and a deletion came before its record.
    with open_small(tmp_path / "store", clock) as store:
        put(store, ("a", "1"), ("a", "2"))
        keep(store)
        [head] = Tables(store.state).latest_heads()
        bits = Tables(store.state).hidden_bits("T", 0, 0)
        store.delete_topic("T")
        assert bits is not None
        store.maintenance._latest.superseded.put(head, {0: bits}, store._topics.ends.get("T"))
        put(store, ("a", "3"), ("a", "4"))
        assert [body for _, body in seen(store)] == ["3", "4"]
        assert keep(store).hidden == 1
        assert [body for _, body in seen(store)] == ["4"]


def test_a_look_is_as_it_was_without_the_database(tmp_path: Path, clock: FakeClock) -> None:
    root = tmp_path / "store"
    with open_small(root, clock) as store:
        put(store, ("a", "1"), ("b", "2"), ("a", "3"))
        keep(store)
        put(store, ("b", "4"))
        keep(store)
        head = list(Tables(store.state).latest_heads())
    shutil.rmtree(root / "kvcq")
    with checked(open_small(root, clock)) as store:
        assert list(Tables(store.state).latest_heads()) == head
        assert [body for _, body in seen(store)] == ["3", "4"]
        assert differences(store) == []


def test_what_is_not_durable_supersedes_nothing(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, ("a", "1"))
    store.flush()
    durable = store.flushed_offset
    put(store, ("a", "2"))
    monkeypatch.setattr(store.maintenance, "_durable_end", lambda: durable)
    assert keep(store) == (1, 0)
    assert [body for _, body in seen(store)] == ["1", "2"]


def test_many_deletions_elsewhere_do_not_end_a_look(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ends, "_MOST", 4)
    names = [f"%LMQ%{number}" for number in range(10)]
    with open_small(tmp_path / "store", clock) as store:
        store.put([Message("T", b"", 0, light_queues=tuple(names))])
        put(store, ("a", "1"), ("a", "2"))
    with open_small(tmp_path / "store", clock) as store:
        kept = store.maintenance.keep_latest("T", 0, lambda _done, _all: store.delete_topics(names))
        assert kept.hidden == 1


def test_many_keys_are_gone_through_in_parts(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latest_messages, "MOST_KEYS", 7)
    monkeypatch.setattr(latest_messages, "_UNITS_A_READ", 5)
    put(store, *((f"k{number % 20}", str(number)) for number in range(50)))
    told: list[tuple[int, int]] = []
    found = store.maintenance.keep_latest("T", 0, lambda done, total: told.append((done, total)))
    assert found == (50, 30)
    assert [body for _, body in seen(store)] == [str(number) for number in range(30, 50)]
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1]


def test_an_error_of_the_progress_hides_nothing(store: MessageStore) -> None:
    put(store, ("a", "1"), ("a", "2"))

    def stop(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.maintenance.keep_latest("T", 0, stop)
    assert len(seen(store)) == 2


def test_what_cannot_be_is_refused(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownQueueError):
        keep(store, "T", 2)
    assert keep(store, "T", 1) == (0, 0)
    put(store, ("a", "1"), ("a", "2"))
    keep(store)
    monkeypatch.setattr("store.derive.superseded.MOST_QUEUES", 1)
    assert keep(store).hidden == 1
    with pytest.raises(InvalidArgumentError, match="no more can be"):
        keep(store, LIGHT)


@settings(max_examples=25, deadline=None)
@given(
    rounds=st.lists(
        st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["", "x", "y"])), max_size=8),
        min_size=1,
        max_size=4,
    )
)
def test_any_history_ends_as_a_dictionary_has_it(
    rounds: Sequence[list[tuple[str, str]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("any")
    everything = [each for one in rounds for each in one]
    latest = {key: number for number, (key, _) in enumerate(everything)}
    with open_small(root / "store") as store:
        store.create_topics([("T", 2)])
        for one in rounds:
            if one:
                put(store, *one)
            keep(store)
        assert [offset for offset, _ in seen(store)] == sorted(latest.values())
    shutil.rmtree(root)
