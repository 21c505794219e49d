"""Parts of ours in the client's own process: the store, a migration, the console, Spark."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from migration.state.phase import Phase
from migration.state.state import MigrationState, write_state
from server.process import calm_collector
from store.config import StoreConfig
from store.message import Message
from tests.benchmarks.processes import free_port
from tests.benchmarks.system import NoServer, System
from tests.benchmarks.systems.ours import KvcqServer
from tests.benchmarks.timing import BATCH, BODY_BYTES, Timed, batches
from tests.support.migrating import live, open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.message_store import MessageStore

SEGMENT_BYTES = 256 << 20
_WAIT_S = 60.0


def store_config(root: Path) -> StoreConfig:
    """Keeps everything; segments of 256 MiB."""
    return StoreConfig(root=root, segment_bytes=SEGMENT_BYTES, reserved_hours=720.0)


def on_files(root: Path) -> MessageStore:
    """An open store whose queues are files, as one that was taken over."""
    open_store(store_config(root)).close()
    (root / "consumequeue").mkdir()
    write_state(root, MigrationState(Phase.FILES))
    return open_store(store_config(root))


class StoreClient:
    """A directory, and a store that is opened when it is first needed."""

    def __init__(self, address: str, *, durable: bool) -> None:
        calm_collector()  # as the server's own process does
        self.root = Path(address)
        self.body = os.urandom(BODY_BYTES)
        self._opened: MessageStore | None = None
        self._topics: set[str] = set()
        #: What is closed with it.
        self.kept = ExitStack()

    @property
    def store(self) -> MessageStore:
        if self._opened is None:
            self._opened = self.open()
        return self._opened

    def open(self) -> MessageStore:
        return open_store(store_config(self.root / "store"))

    def message(self, topic: str, light_queues: tuple[str, ...] = ()) -> Message:
        return Message(topic, self.body, 0, light_queues=light_queues)

    def put(
        self, topic: str, batch: Callable[[range], list[Message]], count: int, limit_s: float
    ) -> Timed:
        """Batches until the time is over; all of it is visible then."""
        if topic not in self._topics:
            self._topics.add(topic)
            self.store.create_topics([(topic, 1)])
        done = 0
        began_s = perf_counter()
        for part in batches(range(count), BATCH):
            self.store.put(batch(part))
            done += len(part)
            if perf_counter() - began_s > limit_s:
                break
        return Timed(done, perf_counter() - began_s)

    def close(self) -> None:
        self.kept.close()
        if self._opened is not None:
            self._opened.close()


class DoubleClient(StoreClient):
    """A store in migration: each put is written to queue files as well."""

    def open(self) -> MessageStore:
        store = on_files(self.root / "store")
        assert live(store).start().wait(_WAIT_S)
        return store


class ConsoleServer(KvcqServer):
    """Its address is that of the service, and behind a space the port of the console."""

    def __init__(self, directory: Path, *, durable: bool) -> None:
        self._console_port = free_port()
        flags = ("--set", f"server.console_port={self._console_port}")
        super().__init__(directory, durable=durable, flags=flags)

    @property
    def address(self) -> str:
        return f"{super().address} {self._console_port}"


class ConsoleClient:
    """Where the service and the console listen."""

    def __init__(self, address: str, *, durable: bool) -> None:
        self.address, self.port = address.split()

    def close(self) -> None:
        pass


def _no_spark() -> str | None:
    from migration.spark.errors import JavaNotFoundError, SparkMissingError
    from migration.spark.java import find_java
    from migration.spark.session import require_packages

    try:
        require_packages()
        find_java(None)
    except (SparkMissingError, JavaNotFoundError):
        return "make setup-spark"
    return None


_STORE, _DOUBLE, _CONSOLE = (
    f"{__name__}:{name}" for name in ("StoreClient", "DoubleClient", "ConsoleClient")
)
SYSTEMS = [
    System("kvcq-store", "the store, no gRPC", NoServer, _STORE),
    System("kvcq-double", "the store, both sides of a migration", NoServer, _DOUBLE),
    System("kvcq-console", "the console", ConsoleServer, _CONSOLE),
    System("kvcq-spark", "Spark", NoServer, _STORE, missing=_no_spark),
]
