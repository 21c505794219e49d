"""Small calls that share one stream, at a fraction of the cost of a gRPC call for each.

The first call opens the stream, and so does the first one after the stream broke. No call is sent
before the server's initial metadata have arrived, so a call that finds no server was not sent.

Puts that are queued at the same time are sent as one batch: see joined_puts.py.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import grpc

from kvcq_client.errors import DeadlineError, KvcqError, UnavailableError
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.transport.below_grpc import STREAM_OVER, write_request
from kvcq_client.transport.joined_puts import JOINED, is_of_one, join, split
from kvcq_client.transport.loop_thread import in_background
from kvcq_client.transport.own_stream import OwnStream
from kvcq_client.transport.statuses import from_batch_error, from_shared_stream
from kvcq_client.transport.waiting import run_at_once

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcq_client.values import Placed

#: A larger request is sent as a gRPC call of its own.
LARGEST_BYTES = 64 << 10
#: Most calls and bytes of one message; the server accepts 64 calls and 320 KiB.
_CALLS_A_MESSAGE = 64
_MESSAGE_BYTES = 256 << 10
#: Flush early once this many calls are queued, so that client and server work in parallel. Twice
#: as many, or half, are slower with 64 callers.
_EARLY = 32
#: Sequential calls before an own stream is opened, so that short scripts do not open one.
CALLS_BEFORE = 64
#: Calls that were given up and whose responses are still looked for.
_MOST_LATE = 1024
#: How long to wait for the server to end a stream that is closed.
_CLOSING_S = 1.0
#: Reason of errors made by the client: the call was not sent.
NOT_SENT = "NOT_SENT"

_EOF: object = grpc.aio.EOF  # type: ignore[attr-defined] # the stubs leave it out


class _Call:
    """A call without a response yet. Not a NamedTuple, which takes three times as long to make."""

    __slots__ = ("end_s", "future", "id", "late", "light_queues", "method", "request", "timeout_s")

    def __init__(
        self,
        call_id: int,
        method: str,
        request: bytes,
        timeout_s: float,
        light_queues: int | None,
        end_s: float,
        future: asyncio.Future[bytes | Placed],
        late: Callable[[bytes], None] | None,
    ) -> None:
        self.id = call_id
        self.method = method
        self.request = request
        self.timeout_s = timeout_s
        #: Number of light queues of a put that may be joined with others; None for all other calls.
        self.light_queues = light_queues
        self.end_s = end_s  # its deadline, on the loop's clock
        self.future = future  # awaited by the caller
        self.late = late


class CallStream:
    """Multiplexes calls over one stream at a time. Owned by the connection's event loop."""

    def __init__(self, open_stream: Callable[..., Any]) -> None:
        self._open_stream = open_stream
        self._loop = asyncio.get_running_loop()
        self._next_id = 1
        self._calls: dict[int, _Call] = {}  # all without a response
        self._waiting: list[_Call] = []  # not sent yet
        self._given_up: list[int] = []  # cancelled, but the server has not been notified yet
        # Of calls that were given up; the server may have answered before it was notified.
        self._late: OrderedDict[int, Callable[[bytes], None]] = OrderedDict()
        self._joined: dict[int, list[_Call]] = {}  # puts that were sent as one batch
        self._timer: asyncio.TimerHandle | None = None  # one for all calls
        self._look_s = inf  # when it fires
        self._task: asyncio.Task[None] | None = None
        # Owned by the task; None until the initial metadata have arrived.
        self._stream: Any = None
        self._is_writing = False
        self._closing = False
        self._own: OwnStream | None = None
        self._alone = 0  # sequential calls so far

    async def call(
        self,
        method: str,
        request: bytes,
        timeout_s: float,
        light_queues: int | None = None,
        late: Callable[[bytes], None] | None = None,
    ) -> bytes | Placed:
        """Return the encoded response, or for a put that was joined with others its place.

        `light_queues`: number of light queues of a put that may be joined; None otherwise. `late`
        is called with a response whose caller was cancelled, or waited for too long. Raises the
        server's error, DeadlineError after `timeout_s`, and UnavailableError when the stream broke;
        its reason is NOT_SENT when the server cannot have seen the call.
        """
        self._count()
        call_id = self._next_id
        self._next_id += 1
        loop = self._loop
        end_s = loop.time() + timeout_s
        future: asyncio.Future[bytes | Placed] = loop.create_future()
        call = _Call(call_id, method, request, timeout_s, light_queues, end_s, future, late)
        self._calls[call_id] = call
        waiting = self._waiting
        waiting.append(call)
        if self._task is None:
            self._task = in_background(self._run(), "kvcq-calls")
        elif len(waiting) == 1:
            self._send_soon()
        elif len(waiting) == _EARLY:
            self._send()
        if end_s < self._look_s:
            self._look_at(end_s)
        try:
            return await future
        except asyncio.CancelledError:
            self._give_up(call_id)
            raise

    @property
    def own(self) -> OwnStream | None:
        """The own stream, if it is free and no other call is in flight; else None."""
        own = self._own
        return None if own is None or self._calls or not own.is_free else own

    def _count(self) -> None:
        """Count sequential calls, and open the own stream after enough of them."""
        self._alone = 0 if self._calls else self._alone + 1
        if self._alone >= CALLS_BEFORE and self._stream is not None and not self._closing:
            self._alone = 0
            if self._own is None or self._own.has_ended:
                self._own = OwnStream(self._open_stream)

    async def close(self) -> None:
        """End the stream and cancel calls in flight. Repeatable.

        Lets the server end the stream. Otherwise gRPC would complete its operations later, when the
        event loop may be closed.
        """
        for call in list(self._calls.values()):
            self._give_up(call.id)
            call.future.cancel()
        self._look_at(inf)
        self._closing = True
        if self._own is not None:
            await self._own.close(_CLOSING_S)
        self._send_soon()
        if (task := self._task) is not None:
            _, pending = await asyncio.wait([task], timeout=_CLOSING_S)
            if pending:
                task.cancel()
                await asyncio.wait([task])

    def _look_at(self, end_s: float) -> None:
        """Check deadlines at that time; inf for never."""
        if self._timer is not None:
            self._timer.cancel()
        self._look_s = end_s
        self._timer = None if end_s == inf else self._loop.call_at(end_s, self._look)

    def _look(self) -> None:
        now_s = self._loop.time()
        for call in list(self._calls.values()):
            if call.end_s <= now_s:
                self._give_up(call.id)
                if not call.future.done():
                    call.future.set_exception(
                        DeadlineError(f"no answer within {call.timeout_s:g} s")
                    )
        self._look_at(min((call.end_s for call in self._calls.values()), default=inf))

    def _give_up(self, call_id: int) -> None:
        """Drop the call if it was not sent, or cancel it at the server. Repeatable."""
        call = self._calls.pop(call_id, None)
        if call is None:
            return
        if call in self._waiting:
            self._waiting.remove(call)
        elif self._task is not None and not any(call in puts for puts in self._joined.values()):
            self._given_up.append(call_id)
            self._send_soon()
            if call.late is not None:
                self._late[call_id] = call.late
                if len(self._late) > _MOST_LATE:
                    self._late.popitem(last=False)

    def _settle(self, call_id: int, outcome: bytes | Placed | KvcqError) -> None:
        call = self._calls.pop(call_id, None)
        if call is None or call.future.done():
            late = self._late.pop(call_id, None) if call is None else call.late
            if late is not None and isinstance(outcome, bytes):
                late(outcome)
            return
        if isinstance(outcome, KvcqError):
            call.future.set_exception(outcome)
        else:
            call.future.set_result(outcome)

    def _settle_joined(self, puts: list[_Call], outcome: bytes | KvcqError) -> None:
        if isinstance(outcome, bytes):
            try:
                places = split(outcome, [put.light_queues or 0 for put in puts])
            except UnavailableError as error:
                outcome = error
            else:
                for put, place in zip(puts, places, strict=True):
                    self._settle(put.id, place)
                return
        if is_of_one(outcome):
            # Nothing was stored. Each is sent on its own, and gets its own error if it has one.
            again = [put for put in puts if put.id in self._calls]
            for put in again:
                put.light_queues = None
            self._waiting += again
            self._send_soon()
            return
        for put in puts:
            self._settle(put.id, _another(outcome))

    async def _run(self) -> None:
        """Run one stream until it ends, and with it all calls on it."""
        stream = self._open_stream()
        error: KvcqError = UnavailableError("the stream of calls ended")
        try:
            await stream.initial_metadata()
            self._stream, self._is_writing = stream, False
            self._send()
            await self._read(stream)
        except grpc.aio.AioRpcError as broken:
            error = from_shared_stream(broken)
        finally:
            self._task = self._stream = None
            stream.cancel()
            self._fail_all(error)

    def _fail_all(self, error: KvcqError) -> None:
        not_sent = {call.id for call in self._waiting}
        self._waiting = []
        self._given_up.clear()
        self._late.clear()
        self._joined.clear()
        for call_id in list(self._calls):
            if call_id in not_sent and not error.reason:
                self._settle(call_id, UnavailableError(str(error), NOT_SENT))
            else:
                self._settle(call_id, _another(error))

    async def _read(self, stream: Any) -> None:  # noqa: ANN401 - grpc has no name for it
        # Iterating over a stream leaves a reference cycle behind.
        while (response := await stream.read()) is not _EOF:
            for result in response.results:
                outcome: bytes | KvcqError = result.response
                if result.HasField("error"):
                    outcome = from_batch_error(result.error)
                if (puts := self._joined.pop(result.id, None)) is not None:
                    self._settle_joined(puts, outcome)
                else:
                    self._settle(result.id, outcome)

    def _send_soon(self) -> None:
        """Send at the end of the loop's turn, together with other calls of that turn."""
        self._loop.call_soon(self._send)

    def _send(self) -> None:
        """Start writing queued calls. A write in progress continues with them instead."""
        stream = self._stream
        # It ended before `_read` noticed, for example because no server was found: send nothing.
        if stream is None or self._is_writing or stream.done():
            return
        if self._waiting or self._given_up:
            self._is_writing = True
            run_at_once(write_request(stream, self._take()), partial(self._written, stream))
        elif self._closing:
            self._is_writing = True  # for good
            run_at_once(stream.done_writing(), _ended)

    def _written(self, stream: Any, error: BaseException | None) -> None:  # noqa: ANN401 - as above
        _ended(error)
        if error is None and stream is self._stream:
            self._is_writing = False
            self._send()

    def _take(self) -> pb.CallsRequest:
        """Queued calls, as many as fit into a message."""
        taken = pb.CallsRequest()
        given_up = self._given_up[:_CALLS_A_MESSAGE]
        del self._given_up[:_CALLS_A_MESSAGE]
        for call_id in given_up:
            taken.calls.add(id=call_id, cancel=True)
        room = _CALLS_A_MESSAGE - len(given_up)
        waiting, self._waiting = self._waiting, []
        size = 0
        for at, call in enumerate(waiting):
            size += len(call.request)
            if at == room or (at and size > _MESSAGE_BYTES):
                waiting, self._waiting = waiting[:at], waiting[at:]
                break
        puts = [call for call in waiting if call.light_queues is not None]
        if len(puts) > 1:
            self._joined[self._next_id] = puts
            request = join([put.request for put in puts])
            _add(taken, self._next_id, JOINED, request, max(put.timeout_s for put in puts))
            self._next_id += 1
            waiting = [call for call in waiting if call.light_queues is None]
        for call in waiting:
            _add(taken, call.id, call.method, call.request, call.timeout_s)
        return taken


def _add(
    message: pb.CallsRequest, call_id: int, method: str, request: bytes, timeout_s: float
) -> None:
    call = message.calls.add()  # filled in place: a message that is assigned is copied
    call.id = call_id
    call.method = method
    call.request = request
    call.timeout_ms = int(timeout_s * 1000) + 1


def _another(error: KvcqError) -> KvcqError:
    """A copy of the error for one caller, since each adds its own traceback."""
    return type(error)(error.message, error.reason, error.metadata)


def _ended(error: BaseException | None) -> None:
    """Handle the end of a write. `_read` reports why a stream ended; other errors are raised."""
    if not (error is None or isinstance(error, (*STREAM_OVER, asyncio.CancelledError))):
        raise error
