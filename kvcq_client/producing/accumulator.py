"""Gathers messages into batches, bounded by bytes. The side of a producer that callers touch."""

from __future__ import annotations

import threading
from time import monotonic
from typing import TYPE_CHECKING

from kvcq_client.arguments import wrong_kind
from kvcq_client.format import FRAME_BYTES, Checker, Outgoing, as_bytes
from kvcq_client.producing.batch import Batch, Sending

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kvcq_client.errors import ClosedError
    from kvcq_client.producing.batch import Run
    from kvcq_client.producing.config import ProducerConfig
    from kvcq_client.values import Message


#: A message, and the bytes it counts for.
Sized = tuple[Outgoing, int]


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
        self._checker = Checker()
        self._known = self._checker.known
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

    def add(
        self,
        topic: str,
        body: bytes,
        queue_id: int | None,
        tag: str,
        keys: Sequence[str],
        light_queues: Sequence[str],
        properties: Mapping[str, str] | None,
        flag: int,
        born_time_ms: int | None,
        ordering_key: str,
    ) -> Sending | None:
        """The message's future; None when the buffer is full.

        Raises ClosedError, TypeError, ValueError.
        """
        if body.__class__ is not bytes:
            body = as_bytes(body)
        message = (
            topic,
            body,
            queue_id,
            tag,
            keys,
            light_queues,
            properties,
            flag,
            born_time_ms,
            ordering_key,
        )
        if keys or light_queues or properties or flag or born_time_ms or ordering_key:
            message, size = self._checker.check(message)
        else:
            try:
                is_known = (topic, queue_id, tag) in self._known
            except TypeError:
                is_known = False
            if not is_known or (queue_id is not None and queue_id.__class__ is not int):
                self._checker.check_place(topic, queue_id, tag)
            size = FRAME_BYTES + len(topic) + len(body)
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
        checker, known = self._checker, self._known
        checked: list[Sized] = []
        for message in messages:
            try:
                topic, body, queue_id = message.topic, message.body, message.queue_id
                tag, keys, light_queues = message.tag, message.keys, message.light_queues
                properties, flag, born = message.properties, message.flag, message.born_time_ms
                order = message.ordering_key
            except AttributeError:
                raise wrong_kind("messages", "a Message", message) from None
            if body.__class__ is not bytes:
                body = as_bytes(body)
            texts = (tag, keys, light_queues, properties)
            outgoing = (topic, body, queue_id, *texts, flag, born, order)
            if keys or light_queues or properties or flag or born or order:
                checked.append(checker.check(outgoing))
                continue
            try:
                is_known = (topic, queue_id, tag) in known
            except TypeError:
                is_known = False
            if not is_known or (queue_id is not None and queue_id.__class__ is not int):
                checker.check_place(topic, queue_id, tag)
            checked.append((outgoing, FRAME_BYTES + len(topic) + len(body)))
        return checked

    def add_checked(self, checked: Sequence[Sized], first: int) -> list[Run]:
        """Add `checked[first:]` while there is room, under one lock; [] when there is none."""
        runs: list[Run] = []
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
                        runs.append((batch, begin, batch.count))
                    batch = self._next_batch()
                    begin = 0
                room -= size
                self._buffered += size
                batch.count += 1
                batch.size += size
                batch.messages.append(message)
                if batch.count >= self._batch_messages or batch.size >= self._batch_bytes:
                    runs.append((batch, begin, batch.count))
                    self._seal()
                    batch = None
            if batch is not None and batch.count > begin:
                runs.append((batch, begin, batch.count))
        return runs

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
