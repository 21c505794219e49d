"""Gathers messages into batches, bounded by bytes. The side of a producer that callers touch."""

from __future__ import annotations

import threading
from time import monotonic
from typing import TYPE_CHECKING

from kvcq_client.format import Checker, outgoing_of
from kvcq_client.producing.batch import Batch, Sending

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kvcq_client.errors import ClosedError
    from kvcq_client.format import Outgoing, Sized
    from kvcq_client.producing.batch import Part
    from kvcq_client.producing.config import ProducerConfig
    from kvcq_client.values import Message


class Accumulator:
    """Open batch, batches ready to go, and the bytes of all that is not acknowledged.

    Thread: any. Locks: `_lock` alone, for microseconds. `on_begin` and `on_ready` are called
    under it, when a batch begins and when one is ready; they must not block.
    """

    def __init__(
        self,
        config: ProducerConfig,
        on_begin: Callable[[], None],
        on_ready: Callable[[], None],
    ) -> None:
        # Constant after construction.
        self._batch_bytes = config.batch_bytes
        self._batch_messages = config.batch_messages
        self._buffer_bytes = config.buffer_bytes
        self._check = Checker().check
        self._on_begin = on_begin
        self._on_ready = on_ready
        #: A batch became ready; whoever sends takes it back, and lets the loop's thread have it.
        self.has_sealed = False
        self._lock = threading.Lock()
        # Guarded by _lock.
        self._open: Batch | None = None
        self._ready: list[Batch] = []
        self._unfinished = 0  # batches, the open one included
        self._buffered = 0  # bytes
        self._room_waiters: list[Callable[[], None]] = []
        self._idle_waiters: list[Callable[[], None]] = []
        self._closed: ClosedError | None = None

    # --- in --------------------------------------------------------------------------------

    def add(self, message: Outgoing) -> Sending | None:
        """The message's future; None when the buffer is full.

        Raises ClosedError, TypeError, ValueError.
        """
        message, size = self._check(message)
        with self._lock:
            if self._buffered >= self._buffer_bytes:
                if self._closed is not None:
                    raise self._closed  # who waits for room would ask again at once, for ever
                return None
            batch = self._open
            if batch is None or batch.size + size > self._batch_bytes:
                batch = self._next_batch()
            index = batch.count
            batch.count = index + 1
            batch.size += size
            self._buffered += size
            batch.messages.append(message)
            if index + 1 >= self._batch_messages or batch.size >= self._batch_bytes:
                self._seal()
        return Sending(batch, index)

    def check(self, messages: Iterable[Message]) -> list[Sized]:
        """What `add_checked` takes. Raises TypeError, ValueError, before anything is added."""
        check = self._check
        return [check(outgoing_of(message, "messages")) for message in messages]

    def add_checked(self, checked: Sequence[Sized], first: int) -> list[Part]:
        """Add `checked[first:]` while there is room, under one lock; [] when there is none."""
        parts: list[Part] = []
        with self._lock:
            if self._closed is not None:
                raise self._closed
            room = self._buffer_bytes - self._buffered
            batch = self._open
            begin = batch.count if batch is not None else 0
            for at in range(first, len(checked)):
                if room <= 0:
                    break
                message, size = checked[at]
                if batch is None or batch.size + size > self._batch_bytes:
                    if batch is not None and batch.count > begin:
                        parts.append((batch, begin, batch.count))
                    batch = self._next_batch()
                    begin = 0
                room -= size
                self._buffered += size
                batch.count += 1
                batch.size += size
                batch.messages.append(message)
                if batch.count >= self._batch_messages or batch.size >= self._batch_bytes:
                    parts.append((batch, begin, batch.count))
                    self._seal()
                    batch = None
            if batch is not None and batch.count > begin:
                parts.append((batch, begin, batch.count))
        return parts

    def _next_batch(self) -> Batch:
        """A new open batch; the one before it, if any, is ready."""
        if self._closed is not None:
            raise self._closed
        if self._open is not None:
            self._seal()
        self._on_begin()  # whoever looks waits for the lock
        batch = Batch(monotonic())
        # No call in between, so no interrupt.
        self._unfinished += 1
        self._open = batch
        return batch

    def _seal(self) -> None:
        batch = self._open
        assert batch is not None
        self._open = None
        self.has_sealed = True
        self._ready.append(batch)
        self._on_ready()

    def when_room(self, callback: Callable[[], None]) -> None:
        """Call back once there is room again, or now if there is."""
        with self._lock:
            if self._buffered >= self._buffer_bytes and self._closed is None:
                self._room_waiters.append(callback)
                return
        callback()

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Seal what is open, and call back once nothing is unfinished, or now."""
        with self._lock:
            if self._open is not None:
                self._seal()
            if self._unfinished:
                self._idle_waiters.append(callback)
                self._on_ready()  # an interrupt may have come before that
                return
        callback()

    def close(self, reason: ClosedError) -> None:
        """Take no more messages. What is open goes out. Repeatable."""
        with self._lock:
            if self._closed is None:
                self._closed = reason
            if self._open is not None:
                self._seal()
            waiters, self._room_waiters = self._room_waiters, []
        for wake in waiters:
            wake()

    def after_fork(self, error: ClosedError) -> None:
        """In a child process: take nothing, and fail what the child has of the parent's batches.

        The parent delivers them. Its threads, which may have held the lock, are not here.
        """
        self._lock = threading.Lock()
        batches = [*self._ready, self._open] if self._open is not None else self._ready
        self._open, self._ready, self._unfinished = None, [], 0
        self._room_waiters, self._idle_waiters = [], []
        self._buffered = 0
        self._closed = error
        for batch in batches:
            batch.after_fork(error)

    @property
    def closed(self) -> ClosedError | None:
        """Why it takes no more, or None."""
        return self._closed

    @property
    def buffered_bytes(self) -> int:
        """Of messages that are not acknowledged."""
        return self._buffered

    # --- out -------------------------------------------------------------------------------

    def seal_older_than(self, begun_s: float) -> float | None:
        """Let the open batch go if it began before; else when it began, None without one."""
        with self._lock:
            batch = self._open
            if batch is None:
                return None
            if batch.begun_s > begun_s:
                return batch.begun_s
            self._seal()
        return None

    def take_ready(self) -> list[Batch]:
        """Batches to deliver, in order; each must come back to `finished`."""
        with self._lock:
            ready, self._ready = self._ready, []
        return ready

    def finished(self, size: int) -> None:
        """A batch of so many bytes has its outcome: there is room."""
        idle: list[Callable[[], None]] = []
        with self._lock:
            self._buffered -= size
            self._unfinished -= 1
            # Wake when a good part is free, not for every batch: a wake-up is a thread switch.
            low = self._buffered <= self._buffer_bytes // 2 or not self._unfinished
            room = self._room_waiters if low else []
            if low:
                self._room_waiters = []
            if not self._unfinished:
                idle, self._idle_waiters = self._idle_waiters, []
        for wake in (*room, *idle):
            wake()
