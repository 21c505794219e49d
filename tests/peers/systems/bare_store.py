"""The limit of storing: the raw probe of a store in the client's own process, without a server."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from kvcq_client import LIGHT_PREFIX
from tests.benchmarks.bare_store import BareStore
from tests.peers.client import command_of
from tests.peers.systems.calls import batches, in_tenths
from tests.peers.systems.protocol import System
from tests.peers.values import AT_ONCE, BATCH, BODY_BYTES, Durability, Timed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class NoServer:
    def __init__(self, directory: Path, durability: Durability) -> None:
        self.address = str(directory / "store")
        self.settings = (
            "in the client's process, records packed with their CRC into a file, rows by WriteBatch"
        )
        if durability is Durability.AFTER_FSYNC:
            self.settings += f", one fdatasync of the log for {AT_ONCE} batches"

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def pids(self) -> list[int]:
        return []


class BareStoreClient:
    """Each piece of work has a store of its own."""

    def __init__(self, address: str, durability: Durability) -> None:
        self._root = Path(address)
        self._is_durable = durability is Durability.AFTER_FSYNC
        self._body = os.urandom(BODY_BYTES)
        self._stores = count()

    def put_each(self, queue: str, count: int) -> Timed:
        return self.put_batches(queue, count, float("inf"))

    def put_batches(self, queue: str, count: int, limit_s: float) -> Timed:
        with self._store([queue]) as store:
            return self._put(
                store, lambda part: (self._body, [0] * len(part)), range(count), limit_s
            )

    def new_queues(self, count: int, limit_s: float) -> Timed:
        with self._store([f"queue-{number:07d}" for number in range(count)]) as store:
            return self._put(store, lambda part: (self._body, part), range(count), limit_s)

    def many_new_queues(self, count: int, limit_s: float) -> Timed:
        with self._store([f"queue-{number:07d}" for number in range(count)]) as store:
            return in_tenths(
                lambda tenth, left_s: self._put(
                    store, lambda part: (self._body, part), tenth, left_s
                ),
                count,
                limit_s,
            )

    def light_queues(self, queues: int, each: int, count: int, limit_s: float) -> Timed:
        names = [f"{LIGHT_PREFIX}light-{number:07d}" for number in range(queues)]

        def batch(part: range) -> tuple[bytes, Sequence[int], list[slice]]:
            firsts = (number * each % queues for number in part)
            return self._body, [0] * len(part), [slice(first, first + each) for first in firsts]

        with self._store(["light"], names) as store:
            timed = self._put(store, batch, range(count), limit_s)
        return Timed(timed.count * each, timed.seconds)

    def _store(self, queues: Sequence[str], light: Sequence[str] = ()) -> BareStore:
        root = self._root / str(next(self._stores))
        pairs = [(name, 0) for name in queues]
        return BareStore(root, pairs, light)

    def _put(
        self,
        store: BareStore,
        batch: Callable[[range], tuple[Any, ...]],
        numbers: range,
        limit_s: float,
    ) -> Timed:
        done = 0
        began_s = perf_counter()
        for number, part in enumerate(batches(numbers, BATCH), 1):
            store.put(*batch(part))
            if self._is_durable and number % AT_ONCE == 0:
                store.sync()
            done += len(part)
            if perf_counter() - began_s > limit_s:
                break
        return Timed(done, perf_counter() - began_s)

    def close(self) -> None:
        pass


SYSTEM = System(
    "bare-store",
    "bare store, no gRPC",
    lambda: None,
    NoServer,
    lambda address, durability: command_of(BareStoreClient, address, durability),
    lambda: "",
    limits={"put_each", "put_batches", "new_queues", "many_new_queues", "light_queues"},
)
