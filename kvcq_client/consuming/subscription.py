"""Fetches many queues over one stream, and continues where it was when the stream breaks.

Each queue has a next offset to fetch. A response carries, for one or more queues, whole messages
and the offset after them. Buffering them moves the next offset, so after a lost connection the new
stream starts exactly there: nothing is lost and nothing comes twice.

The server sends at most as many bytes as were granted. What the reader has taken is granted again,
a quarter of the buffer at a time.

Moving a queue that is followed (`seek`, or following it again) opens a new stream, because
responses for the old offset may be in flight on the old one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from collections import deque
from datetime import UTC, datetime
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import grpc

from kvcq_client.errors import (
    ClosedError,
    DataLossError,
    DeadlineError,
    HandshakeError,
    KvcqError,
    NotFoundError,
    OffsetOutOfRangeError,
    UnavailableError,
)
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.transport import (
    STREAM_OVER,
    Backoff,
    ForkedError,
    close_in_children,
    connected,
    from_batch_error,
    from_rpc,
    in_parts,
    is_retried,
    write_request,
)
from kvcq_client.values import LIGHT_PREFIX, Queue, Start, given_at
from kvcq_client.wire import position_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kvcq_client.consuming.config import ConsumerConfig
    from kvcq_client.transport import Connection

    Stream = grpc.aio.StreamStreamCall[pb.SubscribeRequest, pb.SubscribeResponse]

logger = logging.getLogger(__name__)

#: The server's limit for the name of a consumer.
_LONGEST_NAME = 255
#: Numbers the consumers of this process.
_numbers = count(1)

#: Reasons of a server that is available, but overloaded.
_AT_ITS_LIMITS = ("TOO_MANY_CALLS", "MEMORY_FULL")
#: With this reason and no next offset, the server is rebuilding the queue from its log.
_BEING_REBUILT = "DAMAGED_QUEUE"
#: How long until such a queue is requested again.
REBUILD_WAIT_S = 0.5
#: Most queues in one request, about 300 KB.
_QUEUES_A_REQUEST = 10_000


class Fetched(NamedTuple):
    """Encoded messages of one queue, or the error of the queue, or its end.

    With an error, `next_offset` is the offset that could not be read.
    """

    queue: Queue
    records: bytes
    queue_offsets: list[int]
    next_offset: int
    error: KvcqError | None = None
    is_end: bool = False  # a light queue that was deleted: it is no longer followed


class Subscription:
    """The receiving side of one consumer.

    `first`, `take` and `when_fetched` may be called on any thread; the rest is owned by the event
    loop.
    """

    def __init__(self, connection: Connection, config: ConsumerConfig) -> None:
        self._connection = connection
        self._config = config
        self._name = f"{socket.gethostname()}:{os.getpid()}:{next(_numbers)}"[:_LONGEST_NAME]
        self._warned_of: set[str] = set()  # other consumers of the group that were warned of
        self._offsets: dict[Queue, int] = {}  # next offset to fetch
        self._left: set[Queue] = set()  # no longer followed on this stream
        self._delayed: dict[Queue, int] = {}  # to be requested again a little later
        self._to_add: list[Queue] = []
        self._to_remove: list[Queue] = []
        self._reopen = False  # a queue was moved
        self._refused: dict[Queue, Backoff] = {}  # rejected for now
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._regrant = max(1, config.buffer_bytes // 4)
        # Guarded by _lock.
        self._lock = threading.Lock()
        self._buffer: deque[Fetched] = deque()
        self._buffered = 0  # bytes in the buffer
        self._taken = 0  # bytes taken, not granted again yet
        # For queues with nothing in the buffer: the offset after messages that the filter excluded.
        # One for each queue, so it stays bounded however many responses arrive.
        self._passed: dict[Queue, int] = {}
        self._waiter: Callable[[], None] | None = None  # the reader's callback
        self._failure: KvcqError | None = None
        close_in_children(self)

    def after_fork(self, error: ForkedError) -> None:
        """See Forkable. Fetched messages belong to the parent."""
        self._lock = threading.Lock()
        self._buffer.clear()
        self._passed.clear()
        self._waiter = None
        self._failure = error

    # --- what the consumer calls, in the loop ----------------------------------------------

    def follow(self, offsets: Mapping[Queue, int]) -> None:
        """Follow these queues from these offsets. Their fetched messages are dropped."""
        for queue, offset in offsets.items():
            self._delayed.pop(queue, None)
            if queue in self._offsets or queue in self._left:
                self._reopen = True
            else:
                self._to_add.append(queue)
            self._offsets[queue] = offset
        self._drop(offsets)
        self._changed.set()

    def leave(self, queues: Iterable[Queue]) -> None:
        """Stop following these queues. Their fetched messages are dropped."""
        queues = list(queues)
        known = [queue for queue in queues if queue in self._offsets]
        for queue in queues:
            self._offsets.pop(queue, None)
            self._delayed.pop(queue, None)
            self._refused.pop(queue, None)
        self._left.update(known)
        self._to_remove += known
        self._drop(queues)
        self._changed.set()

    @property
    def queues(self) -> list[Queue]:
        """The queues that are followed."""
        return [*self._offsets, *self._delayed]

    def failed(self) -> dict[Queue, int]:
        """Queues whose error has not been taken yet, each with the offset of the error."""
        with self._lock:
            return {one.queue: one.next_offset for one in self._buffer if one.error is not None}

    def fail(self, error: KvcqError) -> None:
        """End with the error, which is raised after the fetched messages."""
        with self._lock:
            self._failure = self._failure or error
            wake, self._waiter = self._waiter, None
        if wake is not None:
            wake()

    async def run(self) -> None:
        """Fetch until cancelled."""
        backoff = Backoff()
        try:
            while True:
                try:
                    await self._stream(backoff)
                except HandshakeError as fault:
                    self.fail(fault)
                    return
                except grpc.aio.AioRpcError as rpc_error:
                    error = from_rpc(rpc_error)
                    if not is_retried(error):
                        self.fail(error)
                        return
                    if error.reason in _AT_ITS_LIMITS:
                        await asyncio.sleep(backoff.next_s())
                    else:
                        await self._wait_for_server(error, backoff)
        except asyncio.CancelledError:
            self.fail(ClosedError("the consumer is closed"))
            raise
        except Exception as error:
            # A defect here must not leave the reader waiting.
            self.fail(KvcqError(f"the consumer failed: {error!r}"))
            raise

    async def _wait_for_server(self, error: KvcqError, backoff: Backoff) -> None:
        """Wait until the server responds again, and log that. A stream would stay silent until
        there is a message."""
        target = self._connection.target
        logger.warning("the server at %s is unavailable, retrying: %s", target, error)
        while True:
            if await self._connection.rest(backoff.next_s()):
                backoff.reset()
            try:
                # Also of a server that rejects puts, such as one with a full disk; not of one that
                # is starting or stopping.
                await self._connection.call(
                    self._connection.messages.GetOffsets, pb.GetOffsetsRequest()
                )
            except HandshakeError:
                return  # the stream will raise it
            except KvcqError as refusal:
                if is_retried(refusal) or isinstance(refusal, DeadlineError):
                    continue
                # It responds, if only with an error; the stream will get that as well.
            logger.info("the server at %s is back", target)
            return

    # --- what readers call, on any thread --------------------------------------------------

    def first(self) -> Fetched | None:
        """The first item that was not taken, or None. It stays until `take`.

        Raises the failure after the last item.
        """
        with self._lock:
            if self._buffer:
                return self._buffer[0]
            if self._passed:
                queue, offset = next(iter(self._passed.items()))
                return Fetched(queue, b"", [], offset)
            if self._failure is not None:
                raise self._failure.with_traceback(None)  # otherwise each raise extends it
            return None

    def take(self, fetched: Fetched) -> None:
        """Remove what `first` returned. Repeatable, since an interrupt may come before its end."""
        with self._lock:
            if self._buffer and self._buffer[0] is fetched:
                size = len(fetched.records)
                self._buffered -= size
                self._taken += size
                self._buffer.popleft()
            elif not fetched.records and self._passed.get(fetched.queue) == fetched.next_offset:
                del self._passed[fetched.queue]
            due = self._taken >= self._regrant
        if due and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._changed.set)

    def when_fetched(self, callback: Callable[[], None]) -> None:
        """Call back once there is an item or a failure; immediately if there already is one.

        Replaces an earlier callback, so that a reader that stopped waiting leaves nothing behind.
        """
        with self._lock:
            if not self._buffer and not self._passed and self._failure is None:
                self._waiter = callback
                return
        callback()

    # --- the stream ------------------------------------------------------------------------

    async def _stream(self, backoff: Backoff) -> None:
        """Run one stream until a queue is moved. Raises AioRpcError when it breaks, and
        HandshakeError."""
        await self._connection.first_contact()
        while not self._offsets:
            self._changed.clear()
            await self._changed.wait()
        self._reopen = False
        self._left.clear()
        self._to_remove.clear()
        self._to_add = list(self._offsets)
        call: Stream = self._connection.subscribe(None)
        reader = asyncio.create_task(self._read(call, backoff), name="subscription")
        reader.add_done_callback(lambda _: self._changed.set())
        try:
            await self._write_first(call)
            while not reader.done() and not self._reopen:
                self._changed.clear()
                for request in self._requests():
                    await write_request(call, request)
                await self._changed.wait()
        except STREAM_OVER:
            await asyncio.wait({reader})  # the stream has ended; the reader knows why
        finally:
            if not reader.done():
                reader.cancel()
            call.cancel()
            outcome = await asyncio.gather(reader, return_exceptions=True)
        if not self._reopen and isinstance(outcome[0], Exception):
            raise outcome[0]

    async def _write_first(self, call: Stream) -> None:
        with self._lock:
            self._taken = 0
            credit = max(1, self._config.buffer_bytes - self._buffered)
        first = pb.SubscribeRequest(
            tag_filter=self._config.tag_filter,
            sql_filter=self._config.sql_filter,
            form=pb.RECORD_FORM_WHOLE,
            max_messages=self._config.batch_messages,
            credit_bytes=credit,
            group=self._config.reader_group,
            reader=self._name if self._config.reader_group else "",
        )
        await connected(call)
        await write_request(call, first)

    def _requests(self) -> list[pb.SubscribeRequest]:
        """Pending requests: queues to add and remove, and bytes to grant."""
        requests = []
        adds = [queue for queue in self._to_add if queue in self._offsets]
        removes, self._to_remove, self._to_add = self._to_remove, [], []
        for part in in_parts(adds, _QUEUES_A_REQUEST):
            request = pb.SubscribeRequest()
            for queue in part:
                offset = self._offsets[queue]
                request.add.add(
                    topic=queue.topic,
                    queue_id=queue.queue_id,
                    offset=offset,
                    given_at=given_at(offset),
                )
            requests.append(request)
        for part in in_parts(removes, _QUEUES_A_REQUEST):
            request = pb.SubscribeRequest()
            for queue in part:
                request.remove.add(topic=queue.topic, queue_id=queue.queue_id)
            requests.append(request)
        with self._lock:
            if self._taken >= self._regrant:
                requests.append(pb.SubscribeRequest(credit_bytes=self._taken))
                self._taken = 0
        return requests

    async def _read(self, call: Stream, backoff: Backoff) -> None:
        while True:
            response = await call.read()
            if not isinstance(response, pb.SubscribeResponse):
                # The server ended the stream, perhaps because it stops. The next stream will tell.
                await asyncio.sleep(backoff.next_s())
                return
            backoff.reset()
            self._received(response)

    def _warn_of(self, other: pb.GroupReader) -> None:
        """Warn that another consumer of the reader group follows the queue: mostly a mistake."""
        who = other.reader or other.address
        if who in self._warned_of:
            return
        self._warned_of.add(who)
        since = datetime.fromtimestamp(other.since_ms / 1000, UTC).isoformat(timespec="seconds")
        logger.warning(
            "reader group %r: %s at %s has followed queue %d of %r since %s, and now this consumer "
            "does too. A reader group does not share work: both read every message, and the "
            "commits of the slower one are refused. See docs/order.md",
            *(self._config.reader_group, who, other.address),
            *(other.queue_id, other.topic, since),
        )

    def _received(self, response: pb.SubscribeResponse) -> None:
        if response.HasField("shared_with"):
            self._warn_of(response.shared_with)
        offsets = self._offsets
        fetched: list[Fetched] = []
        unwanted = 0  # bytes
        for one in response.queues:
            queue = Queue(one.topic, one.queue_id)
            if queue not in offsets or self._reopen:
                # The queue was left or moved meanwhile.
                unwanted += len(one.batch.records)
                continue
            if one.HasField("error"):
                failed = self._queue_failed(queue, from_batch_error(one.error))
                if failed is not None:
                    fetched.append(failed)
                continue
            batch = one.batch
            if self._refused:
                self._refused.pop(queue, None)
            next_offset = offsets[queue] = position_in(batch, batch.next_offset)
            fetched.append(Fetched(queue, batch.records, list(batch.queue_offsets), next_offset))
        if fetched:
            self._put(fetched)
        if unwanted:
            # They used up credit, which has to be granted again.
            with self._lock:
                self._taken += unwanted
            self._changed.set()

    def _queue_failed(self, queue: Queue, error: KvcqError) -> Fetched | None:
        """Handle an error with which the server dropped the queue. Returns what the reader gets."""
        # Nothing more arrives for it on this stream, so it can be added again.
        asked = self._offsets.pop(queue)
        if isinstance(error, UnavailableError):  # with growing delays, while the others continue
            wait_s = self._refused.setdefault(queue, Backoff()).next_s()
            self._delayed[queue] = asked
            self._loop.call_later(wait_s, self._request_again, queue)
            return None
        if isinstance(error, NotFoundError) and queue.topic.startswith(LIGHT_PREFIX):
            if self._config.when_expired is not None:
                # As before its first message: from offset 0.
                logger.warning("light queue %r was deleted; following it anew", queue.topic)
                self._add_again(queue, 0)
                return Fetched(queue, b"", [], 0)
            if self._offsets or self._delayed:  # otherwise the reader would wait forever
                logger.warning("light queue %r was deleted; no longer following it", queue.topic)
                self._left.add(queue)
                return Fetched(queue, b"", [], asked, is_end=True)
        offset = self._continue_at(error)
        if offset is not None:
            self._add_again(queue, offset)
            return Fetched(queue, b"", [], offset)  # moves the reader's position too
        if self._config.skip_damaged and error.reason == _BEING_REBUILT:
            self._delayed[queue] = asked
            self._loop.call_later(REBUILD_WAIT_S, self._request_again, queue)
            return None
        self._left.add(queue)
        return Fetched(queue, b"", [], asked, error)

    def _continue_at(self, error: KvcqError) -> int | None:
        """Where to continue according to the settings; None to raise the error."""
        where = self._config.when_expired
        if isinstance(error, OffsetOutOfRangeError) and where is not None:
            return error.min_offset if where is Start.EARLIEST else error.max_offset
        if isinstance(error, DataLossError) and self._config.skip_damaged:
            if error.next_offset is not None:
                logger.warning("skipped: %s; continuing at offset %d", error, error.next_offset)
            return error.next_offset
        return None

    def _add_again(self, queue: Queue, offset: int) -> None:
        self._offsets[queue] = offset
        self._to_add.append(queue)
        self._changed.set()

    def _request_again(self, queue: Queue) -> None:
        """Request the queue again, unless it was moved or left meanwhile."""
        offset = self._delayed.pop(queue, None)
        if offset is not None:
            self._add_again(queue, offset)

    def _put(self, fetched: Sequence[Fetched]) -> None:
        with self._lock:
            for one in fetched:
                if one.records or one.error is not None or one.is_end:
                    self._buffer.append(one)
                    self._buffered += len(one.records)
                    if one.records:  # these messages end after that offset
                        self._passed.pop(one.queue, None)
                else:
                    self._passed[one.queue] = one.next_offset
            wake, self._waiter = self._waiter, None
        if wake is not None:
            wake()

    def _drop(self, queues: Iterable[Queue]) -> None:
        """Drop fetched messages of the queues."""
        unwanted = set(queues)
        with self._lock:
            kept = deque(one for one in self._buffer if one.queue not in unwanted)
            dropped = sum(len(one.records) for one in self._buffer) - sum(
                len(one.records) for one in kept
            )
            self._buffer = kept
            for queue in unwanted:
                self._passed.pop(queue, None)
            self._buffered -= dropped
            self._taken += dropped
