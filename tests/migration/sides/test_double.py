"""A side that is busy did not fail: what it was asked for is done again, by it or by the caller."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from migration.state import SideName
from store.errors import StoreBusyError
from tests.support.checked import checked
from tests.support.migrating import (
    LIGHT,
    config,
    differences,
    done,
    live,
    make_on_files,
    messages,
    open_store,
    settle,
    side_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from migration.sides.double import DoubleQueueStore
    from store.message_store import MessageStore


class Busy:
    """A method that is busy `times` times."""

    def __init__(self, method: object, times: int) -> None:
        self.method = method
        self.left = times
        self.calls: list[tuple[object, ...]] = []

    def __call__(self, *arguments: object, **settings: object) -> object:
        self.calls.append(arguments)
        if self.left:
            self.left -= 1
            raise StoreBusyError("stalls")
        assert callable(self.method)
        return self.method(*arguments, **settings)


@pytest.fixture
def store(tmp_path: Path, damaged: bool) -> Iterator[MessageStore]:
    """In DOUBLE_WRITE: RocksDB is written, and nothing is read from it."""
    root = tmp_path / "store"
    make_on_files(root)
    with checked(open_store(config(root)), damaged=damaged) as opened:
        opened.put(messages(0, 40))
        opened.wait_visible()
        done(live(opened).start())
        settle(opened)
        yield opened


def busy(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch, name: str, times: int = 1
) -> tuple[DoubleQueueStore, Busy]:
    double = live(store).double
    side = side_of(store, SideName.ROCKSDB)
    method = Busy(getattr(side.store, name), times)
    monkeypatch.setattr(side.store, name, method)
    return double, method


def check_in_use(double: DoubleQueueStore) -> None:
    assert double.is_joined(SideName.ROCKSDB)


def test_a_deletion_that_meets_a_busy_side_is_met_again_by_its_filler(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, delete = busy(store, monkeypatch, "delete_topic")
    store.delete_topics(["orders", LIGHT])
    live(store).look()
    settle(store)
    assert len(delete.calls) > 1
    for name in SideName:
        assert not {"orders", LIGHT} & set(side_of(store, name).store.names())
    assert differences(store) == []


@pytest.mark.damages
def test_a_side_that_joins_behind_an_ending_has_it_too(store: MessageStore) -> None:
    """The filler has read up to the record that ends the queue, which is dispatched next."""
    double = live(store).double
    side = side_of(store, SideName.ROCKSDB)
    end = double.dispatched_offset
    side.joined = False
    double.delete_topic(LIGHT, end)
    assert LIGHT in side.store.names()
    double.join(SideName.ROCKSDB, lambda _start, _end: None)
    assert LIGHT not in side.store.names()
    store.delete_topic("orders")  # dispatched, so that what ended is forgotten
    assert double._ended == []


def test_an_expiry_that_meets_a_busy_side_is_done_by_the_next_tick(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    double, expire = busy(store, monkeypatch, "expire", times=2)
    double.expire(0, 0)
    double.maintain()
    double.maintain()
    double.maintain()
    assert expire.calls == [(0, 0)] * 3
    check_in_use(double)


def test_rewriting_tells_the_caller_of_a_busy_side(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    double, rewrite = busy(store, monkeypatch, "rewrite")
    with pytest.raises(StoreBusyError):
        double.rewrite([])
    check_in_use(double)
    double.rewrite([])
    assert len(rewrite.calls) == 2


@pytest.mark.parametrize("name", ["flush", "maintain", "compact"])
def test_what_comes_again_by_itself_passes_over_a_busy_side(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    double, _ = busy(store, monkeypatch, name)
    getattr(double, name)()
    check_in_use(double)


def test_a_compaction_that_is_left_off_stops_no_side(store: MessageStore) -> None:
    double = live(store).double
    shares: list[float] = []

    def left_off(share: float) -> None:
        shares.append(share)
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        double.compact(left_off)
    assert len(shares) == 1
    side = side_of(store, SideName.ROCKSDB)
    assert side.failure is None
    told: list[float] = []
    double.compact(told.append)
    assert told[-1] == 1.0
