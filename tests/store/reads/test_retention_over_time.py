"""What a topic keeps over restarts, deletions, and what the log itself drops."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from kvcq.state_store import KvStateStore
from store.derive import kept_bytes as kept_module
from store.errors import (
    DiskFullError,
)
from store.metadata import Retention
from tests.store.reads.kept import HOUR_MS, HOUR_S, bounds, count, put, record_size, seen
from tests.support.checked import checked
from tests.support.stores import SEGMENT_BYTES, open_small

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from store.message_store import MessageStore
    from tests.support.fake_clock import FakeClock


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[MessageStore]:
    with checked(open_small(tmp_path / "store", clock)) as opened:
        opened.create_topics([("T", 2), ("all", 1)])
        yield opened


def test_where_time_begins_was_not_looked_for_before_what_another_limit_kept(
    store: MessageStore, clock: FakeClock
) -> None:
    put(store, 3)
    store.keep("T", time_ms=HOUR_MS, messages=1)
    assert bounds(store) == (2, 3)
    store.keep("T", messages=2)
    assert bounds(store) == (1, 3)
    store.keep("T", messages=0)
    assert bounds(store) == (0, 3)
    assert seen(store) == [0, 1, 2]
    clock.advance(HOUR_S + 1)
    put(store, 1)
    assert bounds(store) == (3, 4)


def test_what_a_count_has_hidden_since_was_not_found_too_old(store: MessageStore) -> None:
    put(store, 2)
    store.keep("T", time_ms=HOUR_MS, messages=1)
    assert bounds(store) == (1, 2)
    put(store, 1)
    assert bounds(store) == (2, 3)
    store.keep("T", time_ms=HOUR_MS, messages=2)
    assert bounds(store) == (1, 3)
    assert seen(store) == [1, 2]


def test_a_restart_keeps_where_queues_begin(tmp_path: Path, clock: FakeClock) -> None:
    root = tmp_path / "store"
    with open_small(root, clock) as store:
        store.create_topics([("T", 1)])
        put(store, 30)
        size = record_size(store)
        store.keep("T", size_bytes=10 * size)
        bounds(store)
        count(store)
    with open_small(root, clock) as store:
        assert store.describe_topic("T").retention == Retention(bytes=10 * size)
        assert bounds(store) == (20, 30)  # at once: nothing is counted again
        put(store, 1)
        bounds(store)
        count(store)
        assert bounds(store) == (21, 31)
        store.keep("T", messages=5)
        assert bounds(store) == (26, 31)
    with checked(open_small(root, clock)) as store:
        assert bounds(store) == (26, 31)


@pytest.mark.parametrize("lost", [(), ("kvcq",), ("kvcq", "snapshots")], ids=str)
def test_a_queue_never_begins_before_it_did(
    tmp_path: Path, clock: FakeClock, lost: tuple[str, ...]
) -> None:
    """Killed after its bytes were counted first, and after more were counted; at an opening that
    finds its database lost as well."""
    root = tmp_path / "store"
    with open_small(root, clock, segment_bytes=1 << 20) as store:
        store.create_topics([("T", 1)])
        put(store, 30)
        size = record_size(store)
        store.keep("T", size_bytes=10 * size)
        told = []
        for round_ in range(3):
            bounds(store)
            count(store)
            told.append(bounds(store))
            shutil.copytree(root, tmp_path / f"killed-{round_}")
            put(store, 7)
    assert told == [(20, 30), (27, 37), (34, 44)]
    for round_, before in enumerate(told):
        killed = tmp_path / f"killed-{round_}"
        for name in lost:
            shutil.rmtree(killed / name, ignore_errors=True)
        with checked(open_small(killed, clock, segment_bytes=1 << 20)) as store:
            assert bounds(store) == before


def test_an_opening_that_cannot_keep_what_it_counts_goes_on(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue that takes several runs to count, and a database that takes no row."""
    root = tmp_path / "store"
    with open_small(root, clock) as store:
        store.create_topics([("T", 1)])
        put(store, 30)
        store.keep("T", size_bytes=10 * record_size(store))
        shutil.copytree(root, tmp_path / "killed")
    shutil.rmtree(tmp_path / "killed" / "kvcq")
    monkeypatch.setattr(kept_module, "UNITS_A_RUN", 5)
    monkeypatch.setattr(kept_module, "_UNITS_A_READ", 5)

    def full(state: object, rows: object) -> None:
        raise DiskFullError("no space")

    with monkeypatch.context() as disk:
        disk.setattr(KvStateStore, "put_counted", full)
        store = open_small(tmp_path / "killed", clock)
    with checked(store):
        while store._services.kept_bytes._due:
            count(store)
        put(store, 1)
        bounds(store)
        while store._services.kept_bytes._due:
            count(store)
        assert bounds(store) == (21, 31)


def test_a_topic_that_is_made_anew_begins_at_its_own_beginning(
    store: MessageStore, clock: FakeClock
) -> None:
    put(store, 30)
    store.keep("T", size_bytes=record_size(store), time_ms=HOUR_MS)
    bounds(store)
    count(store)
    assert bounds(store) == (29, 30)
    store.delete_topic("T")
    count(store)
    store.create_topics([("T", 2)], {"T": Retention(time_ms=HOUR_MS, bytes=1 << 20)})
    put(store, 3)
    assert bounds(store) == (0, 3)
    count(store)
    assert bounds(store) == (0, 3)


def test_what_the_log_drops_is_counted_no_more(tmp_path: Path, clock: FakeClock) -> None:
    with checked(open_small(tmp_path / "store", clock, reserved_hours=1.0)) as store:
        store.create_topics([("T", 1)])
        put(store, 1)
        size = record_size(store)
        store.keep("T", size_bytes=SEGMENT_BYTES * 3)
        while store.log.appended_offset < SEGMENT_BYTES * 2:
            put(store, 50)
        bounds(store)
        count(store)
        assert bounds(store)[0] == 0
        store.flush()
        clock.advance(HOUR_S + 1)
        put(store, 1)
        store.expire()
        low, high = store.bounds_in_log([("T", 0)])[0]
        assert 0 < low < high
        assert bounds(store) == (low, high)
        count(store)
        assert bounds(store) == (low, high)
        store.keep("T", size_bytes=2 * size)
        for _ in range(2):
            bounds(store)
            count(store)
        assert bounds(store) == (high - 2, high)


def test_a_queue_that_is_empty_has_no_limit(store: MessageStore) -> None:
    store.keep("T", time_ms=1, size_bytes=1, messages=1)
    assert bounds(store) == (0, 0)
    count(store)
    assert seen(store) == []
