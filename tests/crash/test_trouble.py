"""P14: closing under load, a full disk, a failed fsync: nothing acknowledged is lost or halved."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from typing import TYPE_CHECKING

import pytest

from migration.check import check_store
from store.config import FlushMode
from store.errors import (
    DiskFullError,
    FlushError,
    StoreBusyError,
    StoreClosedError,
    StoreError,
    StoreFailedError,
)
from store.format.record import unpack_record
from store.log.preallocate import Preallocator
from store.message import Message
from tests.support.rebuild import differences
from tests.support.stores import open_small

if TYPE_CHECKING:
    from pathlib import Path

    from store.message_store import MessageStore

pytestmark = pytest.mark.crash


class Load:
    """Threads that put and pull until the store tells them to stop."""

    def __init__(self, store: MessageStore, producers: int = 3) -> None:
        self.store = store
        self.acknowledged: list[list[bytes]] = [[] for _ in range(producers)]
        self.refusals: list[BaseException] = []
        self.enough = threading.Event()
        self._count = 0
        self._threads = [
            threading.Thread(target=self._produce, args=(number,)) for number in range(producers)
        ]
        self._threads.append(threading.Thread(target=self._consume))

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def _produce(self, number: int) -> None:
        try:
            while True:
                batch = [
                    b"%d %d %d" % (number, len(self.acknowledged[number]), n) for n in range(3)
                ]
                self.store.put(
                    [
                        Message("T", body.ljust(500), number, light_queues=("%LMQ%a",))
                        for body in batch
                    ]
                )
                self.acknowledged[number] += batch
                self._count += 1
                if self._count >= 60:
                    self.enough.set()
        except (StoreClosedError, StoreFailedError, DiskFullError, StoreBusyError) as error:
            self.refusals.append(error)
            self.enough.set()

    def _consume(self) -> None:
        offset = 0
        while True:
            try:
                offset = self.store.pull("T", 0, offset).next_offset
            except StoreClosedError:
                return
            except StoreError as error:
                if isinstance(error, StoreFailedError):
                    raise
                if self.enough.is_set() and self.refusals:
                    return


def assert_all_there(store: MessageStore, acknowledged: list[list[bytes]]) -> None:
    for number, wanted in enumerate(acknowledged):
        found: list[bytes] = []
        while True:
            pulled = store.pull("T", number, len(found), max_messages=1000)
            if not pulled.records:
                break
            found += [unpack_record(record).body.rstrip() for record in pulled.records]
        assert found[: len(wanted)] == wanted
        assert len(found) % 3 == 0  # no batch by halves
    assert differences(store) == []


@pytest.mark.parametrize("mode", list(FlushMode))
def test_p14_closing_under_load(tmp_path: Path, mode: FlushMode) -> None:
    root = tmp_path / "store"
    store = open_small(root, flush_mode=mode)
    store.create_topics([("T", 4)])
    load = Load(store)
    load.start()
    assert load.enough.wait(60)
    store.close()
    load.join()
    assert len(load.refusals) == 3
    assert all(isinstance(error, StoreClosedError) for error in load.refusals)
    assert not (root / "abort").exists()
    assert check_store(root) == []
    with open_small(root, flush_mode=mode) as store:
        assert_all_there(store, load.acknowledged)


@pytest.mark.parametrize("preallocate", [False, True])
@pytest.mark.parametrize("mode", list(FlushMode))
def test_p14_a_full_disk_at_the_roll(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: FlushMode, preallocate: bool
) -> None:
    root = tmp_path / "store"
    monkeypatch.setattr("store.log.preallocate.RETRY_S", 0.05)
    store = open_small(root, flush_mode=mode, preallocate=preallocate)
    store.create_topics([("T", 4)])
    allocate = os.posix_fallocate

    def full(_descriptor: int, _offset: int, _size: int) -> None:
        raise OSError(errno.ENOSPC, "planted")

    monkeypatch.setattr(os, "posix_fallocate", full)
    load = Load(store)
    load.start()
    load.enough.wait(60)
    for thread in load._threads[:-1]:
        thread.join(60)
    assert load.refusals
    assert all(isinstance(error, DiskFullError) for error in load.refusals)
    assert_all_there(store, load.acknowledged)
    # A smaller put may still fit; and when there is space again, everything goes on.
    monkeypatch.setattr(os, "posix_fallocate", allocate)
    source = store.log._segments._source
    assert isinstance(source, Preallocator)
    assert source._changes.until(lambda: not source._failed, 60)
    store.put([Message("T", b"x" * 40_000, 3)] * 3)
    assert store.bounds([("T", 3)])[0].max_offset == 3
    store.close()
    load.join()
    assert check_store(root) == []
    with open_small(root, flush_mode=mode) as store:
        assert_all_there(store, load.acknowledged)


@pytest.mark.parametrize("mode", list(FlushMode))
def test_p14_a_failed_fsync_under_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: FlushMode
) -> None:
    root = tmp_path / "store"
    store = open_small(root, flush_mode=mode)
    store.create_topics([("T", 4)])
    load = Load(store)
    flush = os.fdatasync

    def failing(descriptor: int) -> None:
        if load.enough.is_set():
            raise OSError(errno.EIO, "planted")
        flush(descriptor)

    monkeypatch.setattr(os, "fdatasync", failing)
    load.start()
    assert load.enough.wait(60)
    with contextlib.suppress(FlushError):  # at that moment all may be durable
        store.flush()
    for thread in load._threads[:-1]:
        thread.join(60)
    with pytest.raises(FlushError):
        store.flush()
    assert len(load.refusals) == 3  # each producer was told
    assert all(isinstance(error, StoreFailedError) for error in load.refusals)
    with pytest.raises(StoreFailedError):
        store.put([Message("T", b"x")])
    store.close()
    load.join()
    assert (root / "abort").exists()
    monkeypatch.undo()
    with open_small(root, flush_mode=mode) as store:
        assert_all_there(store, load.acknowledged)
        store.put([Message("T", b"x")])
