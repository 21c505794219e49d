"""Backups while threads put, delete, commit and drop segments: nothing acknowledged is missing."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from kvcq.backup import open_place, restore, take_backup, verify
from kvcq.backup.copying import copy_files
from kvcq.backup.process import copy_in_process
from store.config import FlushMode
from store.errors import StoreBusyError, UnknownTopicError
from store.message import Message
from tests.support.backups import opened, queues_of
from tests.support.fake_clock import FakeClock
from tests.support.stores import open_small

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store.message_store import MessageStore

_BACKUPS = 3


class Load:
    """Threads that use a store until they are told to end."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._end = threading.Event()
        self._errors: list[BaseException] = []
        #: Bodies that were acknowledged, by queue; each list only grows.
        self.acknowledged: dict[int, list[bytes]] = {0: [], 1: []}
        self._threads = [
            threading.Thread(target=self._loop, args=(step,))
            for step in (self._putter(0), self._putter(1), self._delete, self._commit)
        ]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()
        assert self._errors == []

    def _loop(self, step: Callable[[], None]) -> None:
        try:
            while not self._end.is_set():
                step()
        except BaseException as error:  # noqa: BLE001 - told by the test
            self._errors.append(error)

    def _putter(self, queue_id: int) -> Callable[[], None]:
        mine = self.acknowledged[queue_id]

        def put() -> None:
            bodies = [b"%d" % (len(mine) + number) for number in range(1 + len(mine) % 5)]
            self._store.put(
                [Message("kept", body.ljust(200), queue_id, keys=("k",)) for body in bodies]
            )
            mine.extend(bodies)
            self._end.wait(0.003)  # what is put is read four times below

        return put

    def _delete(self) -> None:
        try:
            self._store.put([Message("gone", b"x", light_queues=("%LMQ%x",))])
            self._store.delete_topic("gone")
        except (StoreBusyError, UnknownTopicError):
            pass  # the other one is at it
        self._end.wait(0.005)

    def _commit(self) -> None:
        if self.acknowledged[0]:
            [(_, end)] = self._store.bounds([("kept", 0)])
            self._store.commit_offsets("group", [("kept", 0, end)])
        self._end.wait(0.002)


@pytest.mark.parametrize("mode", list(FlushMode))
def test_what_was_acknowledged_before_is_in_it(mode: FlushMode, tmp_path: Path) -> None:
    url = str(tmp_path / "b")
    clock = FakeClock()
    with open_small(tmp_path / "store", clock, flush_mode=mode) as store:
        store.create_topics([("kept", 2)])
        taken = []
        with Load(store) as load:
            for number in range(_BACKUPS):
                while len(load.acknowledged[0]) < 50 * (number + 1):
                    store.flush()
                before = {queue: len(rows) for queue, rows in load.acknowledged.items()}
                copy = copy_in_process if number % 2 else copy_files
                clock.advance(1)
                one = take_backup(store, queues_of(store), url, copy=copy, clock=clock)
                taken.append((before, one))
    place = open_place(url)
    assert verify(place).broken == ()
    for number, (before, one) in enumerate(taken):
        root = tmp_path / f"again-{number}"
        restore(place, one.backup, root)
        found = opened(root, clock)
        for queue_id, count in before.items():
            rows = [int(body) for _, body in found["kept", queue_id]]
            assert rows == list(range(len(rows))), "and none is there twice, or out of order"
            assert len(rows) >= count
