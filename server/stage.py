"""How far the server is: opening its store, serving, or draining. And what it serves with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from server.errors import ServerDrainingError, ServerStartingError

if TYPE_CHECKING:
    from collections.abc import Callable

    from migration.migrator import Migrator
    from server.config import ServerConfig
    from server.puts.appender import Appender
    from server.puts.coalescer import PutCoalescer
    from server.puts.durability import Durability
    from server.puts.producer_sessions import ProducerSessions
    from server.puts.queue_chooser import QueueChooser
    from server.reads.cold_reads import ColdReads
    from server.reads.queue_growth import QueueGrowth
    from server.wire.request_memory import RequestMemory
    from server.workers import Workers
    from store.message_store import MessageStore


@dataclass(frozen=True, slots=True)
class Parts:
    """What the handlers work with, once the store is open."""

    config: ServerConfig
    store: MessageStore
    migrator: Migrator  # of that store
    store_host: bytes  # packed, as message ids begin
    threads: tuple[Workers | Appender, ...]  # all of them, to be closed in this order
    # By what they do; see workers.py.
    workers: Workers  # look-ups
    scans: Workers  # what takes long by its nature: many queues, many names
    reads: Workers  # pulls that are long, or far behind
    commits: Workers
    changes: Workers  # topics and groups; they may wait for what was dispatched
    steps: Workers  # of a migration
    bulk: Workers  # for large puts
    appender: Appender
    memory: RequestMemory
    cold_reads: ColdReads
    growth: QueueGrowth
    durability: Durability
    coalescer: PutCoalescer
    chooser: QueueChooser
    sessions: ProducerSessions


class Stage:
    """Starting, then ready, then perhaps failed, then draining; never back.

    Owned by the event loop's thread, but for `report`.
    """

    def __init__(self) -> None:
        self._parts: Parts | None = None
        self._draining = False
        self._failed = False
        self._on_change: set[Callable[[], object]] = set()
        # Written by the thread that opens the store, read anywhere; replaced as one.
        self._progress = ("waiting", 0.0)

    @property
    def parts(self) -> Parts:
        """Raises ServerStartingError before the store is open, ServerDrainingError after."""
        if self._draining:
            raise ServerDrainingError
        if self._parts is None:
            raise ServerStartingError(*self._progress)
        return self._parts

    @property
    def is_ready(self) -> bool:
        """Whether calls are taken, and puts can be stored."""
        return self._parts is not None and not self._draining and not self._failed

    @property
    def is_draining(self) -> bool:
        """Whether the server ends."""
        return self._draining

    @property
    def progress(self) -> tuple[str, float]:
        """The step of opening, and the part of it that is done, 0 to 1."""
        return self._progress

    def report(self, step: str, fraction: float) -> None:
        """Note how far opening is. Any thread. Raises ServerDrainingError to end the opening."""
        self._progress = (step, fraction)
        if self._draining:
            raise ServerDrainingError

    def ready(self, parts: Parts) -> None:
        """The store is open: calls are taken from now on."""
        self._parts = parts
        self._tell()

    def fail(self) -> None:
        """No put can be stored before the next start; calls are taken all the same. Repeatable."""
        self._failed = True
        self._tell()

    def drain(self) -> None:
        """No new calls; what waits or streams comes to its end. Repeatable."""
        self._draining = True
        self._tell()

    def on_change(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call `callback` when the server becomes ready, fails, or drains, or now if it drains.

        Returns how to take it back.
        """
        self._on_change.add(callback)
        if self._draining:
            callback()
        return lambda: self._on_change.discard(callback)

    def _tell(self) -> None:
        for callback in tuple(self._on_change):
            callback()
