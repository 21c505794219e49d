"""Collects messages into batches, within a limit of bytes. The callers' side of a producer."""

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
    """The open batch, batches ready to be sent, and the bytes of unacknowledged messages.

    Thread-safe. `on_begin` and `on_ready` are called under the lock, when a batch begins and when
    one is ready; they must not block.
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
        #: Set when a batch became ready. A caller resets it, and lets the loop's thread run.
        self.has_sealed = False
        self._lock = threading.Lock()
        # Guarded by _lock.
        self._open: Batch | None = None
        self._ready: list[Batch] = []
        self._unfinished = 0  # batches, including the open one
        self._buffered = 0  # bytes
        self._room_waiters: list[Callable[[], None]] = []
        self._idle_waiters: list[Callable[[], None]] = []
        self._closed: ClosedError | None = None

    # --- in --------------------------------------------------------------------------------

    def add(self, message: Outgoing) -> Sending | None:
        """Add the message and return its future, or None if the buffer is full.

        Raises ClosedError, TypeError, ValueError.
        """
        message, size = self._check(message)
        with self._lock:
            if self._buffered >= self._buffer_bytes:
                if self._closed is not None:
                    raise self._closed  # a caller that waits for space would retry for ever
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
        """Check messages for `add_checked`. Raises TypeError, ValueError; nothing is added then."""
        check = self._check
        return [check(outgoing_of(message, "messages")) for message in messages]

    def add_checked(self, checked: Sequence[Sized], first: int) -> list[Part]:
        """Add messages from `checked[first:]` while there is space. Returns where they are."""
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
        """Open a new batch, and seal the open one if there is one."""
        if self._closed is not None:
            raise self._closed
        if self._open is not None:
            self._seal()
        self._on_begin()  # the loop waits for the lock before it looks
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
        """Call back once there is space, or now if there is."""
        with self._lock:
            if self._buffered >= self._buffer_bytes and self._closed is None:
                self._room_waiters.append(callback)
                return
        callback()

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Seal the open batch, and call back once no batch is unfinished, or now."""
        with self._lock:
            if self._open is not None:
                self._seal()
            if self._unfinished:
                self._idle_waiters.append(callback)
                self._on_ready()  # an interrupt may have prevented the earlier call
                return
        callback()

    def close(self, reason: ClosedError) -> None:
        """Reject further messages, and seal the open batch. Repeatable."""
        with self._lock:
            if self._closed is None:
                self._closed = reason
            if self._open is not None:
                self._seal()
            waiters, self._room_waiters = self._room_waiters, []
        for wake in waiters:
            wake()

    def after_fork(self, error: ClosedError) -> None:
        """In a forked child: reject messages, and fail the copies of the parent's batches.

        The parent delivers them. A thread of the parent may have held the lock.
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
        """Why messages are rejected, or None."""
        return self._closed

    @property
    def buffered_bytes(self) -> int:
        """Bytes of unacknowledged messages."""
        return self._buffered

    # --- out -------------------------------------------------------------------------------

    def seal_older_than(self, begun_s: float) -> float | None:
        """Seal the open batch if it began by then. Returns when it began if it stays open."""
        with self._lock:
            batch = self._open
            if batch is None:
                return None
            if batch.begun_s > begun_s:
                return batch.begun_s
            self._seal()
        return None

    def take_ready(self) -> list[Batch]:
        """Take the batches that are ready, in order. Each must be paired with one `finished`."""
        with self._lock:
            ready, self._ready = self._ready, []
        return ready

    def finished(self, size: int) -> None:
        """Release the space of a batch that has its result."""
        idle: list[Callable[[], None]] = []
        with self._lock:
            self._buffered -= size
            self._unfinished -= 1
            # Wake callers when half is free, not for every batch: each wake-up is a thread switch.
            low = self._buffered <= self._buffer_bytes // 2 or not self._unfinished
            room = self._room_waiters if low else []
            if low:
                self._room_waiters = []
            if not self._unfinished:
                idle, self._idle_waiters = self._idle_waiters, []
        for wake in (*room, *idle):
            wake()
