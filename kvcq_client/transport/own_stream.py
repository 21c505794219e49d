"""A stream of calls that one caller at a time has for its own, in an event loop.

On the stream that callers share one task reads for all, and gRPC tells of the end of each write, by
a thread, before it tells of the answer. Here the caller hands gRPC request and wait for the answer
at once, and is told once: a quarter less of the client's processor time. Meanwhile nobody can
write, so it is a shortcut and never the only way: a caller who finds the stream taken, not open
yet, or ended takes the one that is shared, and so does a call that may be parked.

A caller who gives up leaves it taken until the answer is there.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import grpc

from kvcq_client.errors import DeadlineError, KvcqError, UnavailableError
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.transport.below_grpc import exchange
from kvcq_client.transport.statuses import from_batch_error, from_shared_stream
from kvcq_client.transport.waiting import run_at_once

if TYPE_CHECKING:
    from collections.abc import Callable


def _request_of(method: str, request: bytes, timeout_s: float) -> pb.CallsRequest:
    """With this one call."""
    message = pb.CallsRequest()
    call = message.calls.add()  # filled in place: one that is given to the message is copied
    call.id = 1
    call.method = method
    call.request = request
    call.timeout_ms = int(timeout_s * 1000) + 1
    return message


class OwnStream:
    """One call at a time. Owned by the event loop that it was made in."""

    def __init__(self, open_stream: Callable[..., Any]) -> None:
        """Begins to open it."""
        self._loop = asyncio.get_running_loop()
        self._stream = open_stream()
        self._is_taken = True  # until the server has said that it is there, and by a call
        self._timer: asyncio.TimerHandle | None = None
        # Of the last call: its answer, and when its time is up.
        self._told: asyncio.Future[pb.CallsResponse] | None = None
        self._end_s = 0.0
        self._opening = self._loop.create_task(self._open(), name="kvcq-own-stream")

    async def _open(self) -> None:
        with suppress(grpc.aio.AioRpcError):
            await self._stream.initial_metadata()
            self._is_taken = False

    @property
    def has_ended(self) -> bool:
        """It is of no use any more."""
        ended: bool = self._stream.done()
        return ended

    @property
    def is_free(self) -> bool:
        """Whether a call may begin."""
        return not (self._is_taken or self._stream.done())

    async def call(self, method: str, request: bytes, timeout_s: float) -> bytes:
        """The encoded response. Only while it `is_free`.

        Raises what the server answered, DeadlineError when the time is up, and UnavailableError
        when the stream broke: the server may have seen the call.
        """
        message = _request_of(method, request, timeout_s)
        self._is_taken = True
        self._told = told = self._loop.create_future()
        self._end_s = self._loop.time() + timeout_s
        if self._timer is None or self._timer.when() > self._end_s:
            self._watch()
        run_at_once(self._ask(message, told), _ended)
        try:
            answer = await told
        except TimeoutError:
            raise DeadlineError(f"no answer within {timeout_s:g} s") from None
        (result,) = answer.results
        if result.HasField("error"):
            raise from_batch_error(result.error)
        response: bytes = result.response
        return response

    async def _ask(self, message: pb.CallsRequest, told: asyncio.Future[pb.CallsResponse]) -> None:
        """To its end, also when the caller has given up: gRPC leaves behind what it waits for and
        is cancelled."""
        answer = await exchange(self._stream, message, pb.CallsResponse)
        if answer is not None:
            self._is_taken = False
            if not told.done():
                told.set_result(answer)
            return
        error = await self._why()
        if not told.done():
            told.set_exception(error)

    async def _why(self) -> KvcqError:
        try:
            await self._stream.read()
        except grpc.aio.AioRpcError as error:
            return from_shared_stream(error)
        self._stream.cancel()
        return UnavailableError("the stream of calls ended")

    def _watch(self) -> None:
        """One timer for all calls: nearly all end before it does."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._end_s, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._told is None or self._told.done():
            return
        if self._loop.time() < self._end_s:
            self._watch()
        else:
            self._told.set_exception(TimeoutError())

    async def close(self, limit_s: float) -> None:
        """End the stream; a call under way is cancelled. Repeatable.

        The server is told, and has `limit_s` to end it. Otherwise gRPC tells of the end of its
        operations later, when the event loop may be closed.
        """
        if self.is_free:
            self._is_taken = True
            with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError):
                async with asyncio.timeout(limit_s):
                    await self._stream.done_writing()
                    await self._stream.read()
        if self._told is not None:
            self._told.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._stream.cancel()
        await asyncio.wait([self._opening])


def _ended(error: BaseException | None) -> None:
    """Raises what is no end of a stream: `close` cancels what is under way."""
    if not (error is None or isinstance(error, asyncio.CancelledError)):
        raise error
