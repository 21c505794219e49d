"""A side that is busy did not fail: what it was asked for is done again, by it or by the caller."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from migration.state import SideName
from store.errors import StoreBusyError
from tests.support.checked import checked
from tests.support.migrating import (
    config,
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


def test_a_deletion_that_meets_a_busy_side_is_done_again(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    double, delete = busy(store, monkeypatch, "delete_topic", times=2)
    store.delete_topic("orders")
    check_in_use(double)
    assert len(delete.calls) == 3
    for name in SideName:
        side = side_of(store, name)
        assert "orders" not in side.store.names()


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


def test_a_mark_stays_until_no_side_can_lose_its_deletion(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.flush()
    double, flush = busy(store, monkeypatch, "flush", times=2)
    store.delete_topic("orders")
    for _ in range(2):
        store.flush()  # the other side alone
        assert [mark.topic for mark in store.metadata.delete_marks()] == ["orders"]
    store.flush()
    assert len(flush.calls) == 3
    assert not store.metadata.delete_marks()
    check_in_use(double)


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
