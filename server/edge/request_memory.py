"""Bounds the memory that clients can make the server use.

gRPC collects a request outside of Python and hands over only the whole, so reads in progress are
not visible here. Instead, the process's private memory is checked every 50 ms while clients may be
using memory. Above `memory_limit_bytes`

* requests that may be large are read one at a time; others wait their turn;
* at each check, the newer half of the slow reads is rejected; well above it, half of the waiting
  ones as well, since each holds up to UNREAD_BYTES before it is read;
* free memory held back by the allocator is returned to the system.

A connection may first have FIRST_READS such reads at a time, one more for each that turned out to
be small, and only as many as fit a quarter of the limit if it sends large ones.

Responses are counted: a large response is only built while the unsent ones are below
`SENT_LIMIT_BYTES`. Above that, users with little unsent data continue, so responses that one user
does not read do not delay others.

The store's own memory, such as RocksDB's caches, counts as well. If the store needs more than the
limit, clients get an additional quarter of it, and one large request at a time is always served.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from server.edge.call_gate import STREAMS, CallKind
from server.edge.readings import SLOW_S, Readings
from server.errors import MemoryFullError
from server.process import give_back, private_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

logger = logging.getLogger(__name__)

LOOK_EVERY_S = SLOW_S
LOOK_AT_STREAMS_EVERY_S = 1.0
#: Between two times that the allocator gives back: it walks all of its free blocks for that.
TRIM_EVERY_S = 1.0
#: How long a call waits for its turn.
WAIT_S = 20.0
#: Large requests of one connection that are read at the same time: at first, and at most.
FIRST_READS = 1
MOST_READS = 256
#: Connections that are remembered without a request that is being read.
PEERS = 4096
#: Above this multiple of the limit streams are ended as well, and waiting requests are rejected.
LAST_FACTOR = 1.25
#: Bytes of a request that a client may send before it is read: gRPC's window for each stream. 2,048
#: streams that are held back take 256 MiB. If gRPC's bandwidth probe decides, it becomes megabytes.
UNREAD_BYTES = 128 << 10
#: Memory for an idle client of RocketMQ with its connection and stream. It is added to the limit,
#: so that ten thousand of them do not cause other requests to be rejected.
CLIENT_BYTES = 64 << 10
#: Memory for one queue of a subscription, with a name of 30 characters.
QUEUE_BYTES = 400
#: One part in this many of what may wait to be sent is little.
KEPT_SHARE = 16
#: Responses that wait to be built. All of them may time out in one turn of the loop.
SENDERS = 1024
#: Requests of streams, in all, that wait until the client has read earlier answers.
HELD_BYTES = 64 << 20
#: A smaller request or response is not counted, because the number of calls is limited.
SMALL_BYTES = 64 << 10
#: A request above is large: it counts as being read until it was handled.
LARGE_BYTES = 1 << 20


@dataclass(slots=True)
class _Peer:
    reads: int = 0
    may_read: int = FIRST_READS
    waiting: int = 0


class _WaitQueue:
    """A FIFO queue of waiting tasks."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[asyncio.Future[None], None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self) -> None:
        """Wait until `next` has reached this task."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting[turn] = None
        try:
            await turn
        except asyncio.CancelledError:
            if turn in self._waiting:
                del self._waiting[turn]
            else:
                self.next()  # its turn came at that very moment
            raise

    def next(self) -> None:
        while self._waiting:
            turn, _ = self._waiting.popitem(last=False)
            if not turn.done():
                turn.set_result(None)
                return


#: Large responses that wait to be sent, in bytes. A client that does not read its responses holds
#: no more than this.
SENT_LIMIT_BYTES = 128 << 20


class RequestMemory:
    """Admits large requests and responses by memory. Owned by the event loop's thread."""

    def __init__(
        self,
        limit_bytes: int,
        sent_limit_bytes: int = SENT_LIMIT_BYTES,
        *,
        private: Callable[[], int] = private_bytes,
        trim: Callable[[], None] = give_back,
        now_s: Callable[[], float] = monotonic,
    ) -> None:
        self._limit_bytes = limit_bytes
        self._sent_limit_bytes = sent_limit_bytes
        self._private = private
        self._trim = trim
        self._now_s = now_s
        self.readings = Readings(now_s)
        self._peers: dict[str, _Peer] = {}
        self._large = 0  # requests that may be large, being read, or large, until they are handled
        self._waiting: deque[tuple[_Peer, asyncio.Future[None]]] = deque()
        self._decoded_bytes = 0  # of large requests, until they are handled
        self._decoders = _WaitQueue()
        self._sent_bytes = 0
        self._sent_by: dict[str, int] = {}
        self._senders = _WaitQueue()
        #: Number of open streams.
        self.streams = 0
        self._held_bytes = 0  # bytes of requests held until their clients read responses
        self._queues = 0  # number of queues of all subscriptions
        self._own_bytes = 0  # private memory after trimming, without the allowance for clients
        self._is_full = False
        self._trimmed_s = -TRIM_EVERY_S
        self._used_since_trim = False  # by large requests or responses
        self._trimming: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_slow = True  # for this timer, or for a missing one
        self._closed = False

    def close(self) -> None:
        """Stop checking."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    # --- requests --------------------------------------------------------------------------

    async def begin_large(self, peer: str) -> None:
        """Wait until a request that may be large may be read. Must be paired with exactly one
        `end_large`.

        Raises MemoryFullError if its turn does not come in time, or memory runs out before.
        """
        state = self._peers.get(peer)
        if state is None:
            state = self._peers[peer] = _Peer()
        if self._may_begin(state) and not state.waiting:
            self._begin(state)
            return
        turn = asyncio.get_running_loop().create_future()
        entry = (state, turn)
        self._waiting.append(entry)
        state.waiting += 1
        self._look_later()
        try:
            async with asyncio.timeout(WAIT_S):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.end_large(peer, 0)  # its turn came at that very moment
            else:
                with suppress(ValueError):
                    self._waiting.remove(entry)
            if isinstance(error, TimeoutError):
                raise MemoryFullError("too many large requests are being read") from None
            raise
        finally:
            state.waiting -= 1
            self._forget(peer, state)

    def end_large(self, peer: str, size: int) -> None:
        """The request was read and is small, or a large one was handled; `size` 0: not read."""
        state = self._peers[peer]
        self._large -= 1
        state.reads -= 1
        if size:
            if size <= LARGE_BYTES:
                state.may_read = min(state.may_read + 1, MOST_READS)
            else:
                fit = self._limit_bytes // 4 // size
                state.may_read = max(1, min(state.may_read, fit))
        self._forget(peer, state)
        if self._waiting:
            self._admit_waiting()

    def _forget(self, peer: str, state: _Peer) -> None:
        if len(self._peers) > PEERS and not state.reads and not state.waiting:
            self._peers.pop(peer, None)

    def _may_begin(self, state: _Peer) -> bool:
        return state.reads < state.may_read and not (self._is_full and self._large)

    def _begin(self, state: _Peer) -> None:
        self._large += 1
        state.reads += 1

    def _admit_waiting(self) -> None:
        """Admit waiting reads in order; a peer at its limit does not delay others."""
        still: deque[tuple[_Peer, asyncio.Future[None]]] = deque()
        for state, turn in self._waiting:
            if not turn.done() and self._may_begin(state):
                self._begin(state)
                turn.set_result(None)
            elif not turn.done():
                still.append((state, turn))
        self._waiting = still

    async def begin_decoding(self, size: int) -> None:
        """Wait until a large request of that size may be decoded. Must be paired with
        `end_decoding`."""
        while self._decoded_bytes and self._decoded_bytes + size > self._limit_bytes // 8:
            await self._decoders.wait()
        self._decoded_bytes += size

    def end_decoding(self, size: int) -> None:
        """The request was handled."""
        self._decoded_bytes -= size
        self._decoders.next()

    def reading(self, call: object, kind: CallKind, *, is_first: bool = False) -> None:
        """The current task reads a request of the call; `is_first`: of a stream. Must be paired
        with `readings.end`. On the path of every call."""
        self.readings.begin(call, kind, is_first=is_first)
        if self._is_slow and kind not in STREAMS:
            self._look_later()
        elif self._timer is None:
            self._look_slowly()

    def was_used(self) -> None:
        """A client used much memory: keep checking until the allocator has returned it."""
        self._used_since_trim = True
        self._look_later()

    # --- responses -------------------------------------------------------------------------

    def set_limit(self, limit_bytes: int) -> None:
        """Set a new limit. Waiting calls are admitted at the next check, if possible."""
        self._limit_bytes = limit_bytes

    def is_crowded(self, asker: str) -> bool:
        """Whether `room_to_send` would wait. A user with little unsent data may use what others
        left of half as much again."""
        over = self._sent_bytes - self._sent_limit_bytes
        if over < 0:
            return False
        is_quiet = self._sent_by.get(asker, 0) < self._sent_limit_bytes // KEPT_SHARE
        return not (is_quiet and over < self._sent_limit_bytes // 2)

    async def room_to_send(self, asker: str) -> None:
        """Wait until a large response to that user or connection may be built. Raises
        MemoryFullError."""
        if not self.is_crowded(asker):
            return
        if len(self._senders) >= SENDERS:
            raise MemoryFullError("too many responses are waiting for slow readers")
        self._look_later()
        try:
            async with asyncio.timeout(WAIT_S):
                await self._senders.wait()
        except TimeoutError:
            raise MemoryFullError("too many responses are waiting for slow readers") from None

    def sends(self, size: int, asker: str) -> None:
        """A response of this size waits to be sent."""
        self._sent_bytes += size
        self._sent_by[asker] = self._sent_by.get(asker, 0) + size
        if size > LARGE_BYTES:
            self.was_used()

    def sent(self, size: int, asker: str) -> None:
        """The response was sent, or its call ended."""
        self._sent_bytes -= size
        left = self._sent_by.pop(asker, 0) - size
        if left:
            self._sent_by[asker] = left
        self._next_sender()

    def _next_sender(self) -> None:
        """Admit one at a time: each builds its response before the next is admitted."""
        if self._sent_bytes < self._sent_limit_bytes:
            self._senders.next()

    @contextmanager
    def held(self, size: int) -> Iterator[None]:
        """Count a stream's request that is held until earlier responses were read. Raises
        MemoryFullError."""
        if self._held_bytes + size > HELD_BYTES:
            raise MemoryFullError("too many responses are waiting for slow readers")
        self._held_bytes += size
        try:
            yield
        finally:
            self._held_bytes -= size

    # --- queues of subscriptions -----------------------------------------------------------

    def follow_queue(self) -> None:
        """Count one more followed queue of a subscription. Every successful call must be paired
        with exactly one `leave_queue`. Raises MemoryFullError."""
        if (self._queues + 1) * QUEUE_BYTES > self._limit_bytes:
            raise MemoryFullError(
                f"{self._queues} queues are followed by all subscriptions together"
            )
        self._queues += 1

    def leave_queue(self) -> None:
        """Count one queue less."""
        self._queues -= 1

    # --- looking ---------------------------------------------------------------------------

    def _look_later(self) -> None:
        if self._is_slow and not self._closed:
            if self._timer is not None:
                self._timer.cancel()
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(LOOK_EVERY_S, self._look)
            self._is_slow = False

    def _look_slowly(self) -> None:
        """Check less often while there are only streams, most of which are idle."""
        if self._timer is None and not self._closed:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(LOOK_AT_STREAMS_EVERY_S, self._look)

    def _look(self) -> None:
        self._timer = None
        self._is_slow = True
        self.readings.end_late()
        private = self._private()
        most = max(self._limit_bytes, self._own_bytes + self._limit_bytes // 4)
        most += self.readings.count(CallKind.TELEMETRY) * CLIENT_BYTES
        self._is_full = private > most
        if self._is_full:
            is_last = private > most * LAST_FACTOR
            self.readings.end_newer_half(streams=is_last)
            if is_last:
                self._refuse_newer_half()
        # Memory that clients used may be free, and only kept by the allocator.
        if private > self._limit_bytes // 2 and self._used_since_trim:
            self._give_back()
        if self._waiting:
            self._admit_waiting()
        # A sender that was admitted may have had little or nothing to send, and will not report it.
        self._next_sender()
        busy = self.readings.of_others or self._waiting or self._senders
        if busy or self._is_full or self._used_since_trim:
            self._look_later()
        elif self.readings.of_streams:
            if private > self._limit_bytes // 2:  # it may fill before the next slow look
                self._look_later()
            else:
                self._look_slowly()

    def _refuse_newer_half(self) -> None:
        """Reject the newer half of the requests that wait to be read."""
        waiting = list(self._waiting)
        kept = (len(waiting) + 1) // 2
        self._waiting = deque(waiting[:kept])
        for _, turn in waiting[kept:]:
            if not turn.done():
                turn.set_exception(MemoryFullError("too many large requests are being read"))

    def _give_back(self) -> None:
        now_s = self._now_s()
        if self._trimming is None and now_s - self._trimmed_s >= TRIM_EVERY_S:
            self._trimmed_s = now_s
            # Memory that is used while the allocator trims is seen by the next check.
            self._used_since_trim = bool(self._large or self._sent_bytes)
            self._trimming = asyncio.get_running_loop().run_in_executor(None, self._trim)
            self._trimming.add_done_callback(self._given_back)

    def _given_back(self, done: asyncio.Future[None]) -> None:
        self._trimming = None
        if not self._large and not self._sent_bytes:
            of_clients = self.streams * UNREAD_BYTES + self._queues * QUEUE_BYTES
            self._own_bytes = max(0, self._private() - of_clients - self._held_bytes)
        if not done.cancelled() and (error := done.exception()) is not None:
            logger.error("cannot return free memory to the system", exc_info=error)
