"""Calls: many calls over one stream, each like a unary call, at a fraction of the cost.

A unary call costs gRPC headers, a deadline and a status, a third of a millisecond of processor time
on both sides; a message on an open stream costs a fifth of that. A call is admitted, limited,
counted and rejected like a unary one, see server/edge; only its bytes are joined with those of
others.
"""

from __future__ import annotations

import asyncio
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from kvcq_client.format import length_delimited, varint
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.access import current_caller
from server.edge import (
    MAX_CALLS,
    SMALL_BYTES,
    CallKind,
    Pace,
    Requests,
    batch_error,
    inner_context,
)
from server.errors import ServerDrainingError
from server.in_turns import in_turns
from server.workers import CALLER
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence

    from google.protobuf.message import Message

    from server.edge import BusyPoll, CallGate, Context, Method, RequestMemory
    from server.metrics import CallMetrics
    from server.stage import Stage

#: Bytes of requests that begin in one turn of the loop.
TURN_BYTES = 16 << 10
#: Bytes of one message of results; a larger result is sent alone. gRPC holds this much of a stream
#: whose client does not read, in any case.
MESSAGE_BYTES = SMALL_BYTES
#: While the client leaves this many bytes of results unread, no further call begins; SMALL_BYTES
#: while too many bytes wait to be sent in all. A result counts RESULT_BYTES besides its response.
UNSENT_BYTES = 1 << 20
RESULT_BYTES = 256


_RESULTS = length_delimited(pb.CallsResponse, "results")
_RESPONSE = length_delimited(pb.CallResult, "response")


class Result(NamedTuple):
    """The result of a call."""

    id: int
    response: bytes
    error: pb.BatchError | None = None


def results_out(results: Sequence[Result]) -> bytes:
    """The encoded CallsResponse; each response is copied once."""
    parts: list[bytes] = []
    for call_id, response, error in results:
        head = pb.CallResult(id=call_id, error=error).SerializeToString()
        if response:
            head += _RESPONSE + varint(len(response))
        parts += (_RESULTS, varint(len(head) + len(response)), head, response)
    return b"".join(parts)


class CallStream:
    """The calls of one stream. Owned by the event loop's thread."""

    def __init__(
        self,
        methods: Mapping[str, Method],
        gate: CallGate,
        memory: RequestMemory,
        metrics: CallMetrics,
        busy_poll: BusyPoll,
        context: Context,
        request_id: str,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._methods = methods
        self._gate = gate
        self._memory = memory
        self._metrics = metrics
        self._pace = Pace(busy_poll)
        self._metadata = context.invocation_metadata()
        self._request_id = request_id
        self._peer = context.peer()
        caller = current_caller()
        self._user, self._usage = caller.name, caller.usage
        self._asker = caller.name or self._peer
        self._under_way: dict[int, tuple[asyncio.Future[Any], Method]] = {}
        # Counted by `memory` too, which lets no more large ones be made than fit.
        self._results: list[Result] = []
        self._is_over = False
        self._unsent_bytes = 0  # of results
        self._room: asyncio.Future[None] | None = None  # the reader waits for it
        # What `run` waits for while it has nothing to do.
        self._sleep: asyncio.Future[None] | None = None
        self._is_reading = True
        self._error: Exception | None = None

    async def run(
        self, requests: AsyncIterator[pb.CallsRequest], stage: Stage
    ) -> AsyncGenerator[bytes, None]:
        """Yield the results. After those of all accepted calls, raises ServerDrainingError when the
        server is shutting down, and InvalidArgumentError or MemoryFullError if the stream itself is
        rejected."""
        reader = asyncio.create_task(self._take(requests), name="calls")

        def stop_reading() -> None:
            if stage.is_draining:
                self._is_reading = False
                reader.cancel()

        stop_listening = stage.on_change(stop_reading)
        try:
            while True:
                if self._results:
                    results = self._some_results()
                    try:
                        yield results_out(results)
                    finally:
                        self._count_sent(results)
                elif self._is_reading or self._under_way:
                    await self._until_woken()
                elif stage.is_draining:
                    raise ServerDrainingError
                elif self._error is not None:
                    raise self._error
                else:
                    return
        finally:
            stop_listening()
            reader.cancel()
            _cancel([task for task, _ in self._under_way.values()])
            self._is_over = True
            self._count_sent(self._results)

    async def _until_woken(self) -> None:
        self._sleep = self._loop.create_future()
        await self._sleep

    def _wake(self) -> None:
        if self._sleep is not None and not self._sleep.done():
            self._sleep.set_result(None)
            self._sleep = None

    def _some_results(self) -> list[Result]:
        results, size = self._results, 0
        for at, result in enumerate(results):
            size += len(result.response)
            if at and size > MESSAGE_BYTES:
                self._results = results[at:]
                return results[:at]
        self._results = []
        return results

    def _add(self, result: Result) -> None:
        # Calls that could not be cancelled have ended; no client is left to answer.
        if self._is_over:
            return
        size = len(result.response) + RESULT_BYTES
        self._memory.sends(size, self._asker)
        self._unsent_bytes += size
        self._results.append(result)

    def _count_sent(self, results: Sequence[Result]) -> None:
        size = sum(len(result.response) + RESULT_BYTES for result in results)
        self._memory.sent(size, self._asker)
        self._unsent_bytes -= size
        if self._room is not None and self._has_room:
            if not self._room.done():
                self._room.set_result(None)
            self._room = None

    @property
    def _has_room(self) -> bool:
        """Whether another call may start; the size of its response is not known yet."""
        is_crowded = self._memory.is_crowded(self._asker)
        return self._unsent_bytes < (SMALL_BYTES if is_crowded else UNSENT_BYTES)

    async def _until_room(self) -> None:
        while not self._has_room:
            self._wake()
            self._room = self._loop.create_future()
            await self._room

    async def _take(self, requests: AsyncIterator[pb.CallsRequest]) -> None:
        try:
            async for request in requests:
                self._pace.asked()
                await self._begin_all(request, requests)
                del request  # the next one may be long in coming
                await self._until_room()
        except Exception as error:  # noqa: BLE001 - the stream itself broke: `run` raises it
            self._error = error
            # A refusal with a reason says that what was not answered was not done. So what may have
            # been done is answered first; a pull changes nothing, and may be parked for long.
            begun = self._under_way.values()
            _cancel([task for task, method in begun if method.kind is CallKind.PULL])
        finally:
            self._is_reading = False
            self._wake()

    async def _begin_all(
        self, request: pb.CallsRequest, requests: AsyncIterator[pb.CallsRequest]
    ) -> None:
        calls = request.calls
        if len(calls) > MAX_CALLS:
            raise InvalidArgumentError(
                "calls", f"{len(calls)} in one message, more than {MAX_CALLS}"
            )
        if len(calls) == 1 and not self._under_way:
            self._begin(calls[0], alone=True)
            if not self._answer_with_next(requests):
                self._wake()
            return
        begun_bytes = 0
        for call in calls:
            if not self._has_room:
                with self._memory.held(request.ByteSize()):
                    await self._until_room()
            begun_bytes += len(call.request)
            if begun_bytes > TURN_BYTES:
                await asyncio.sleep(0)
                begun_bytes = len(call.request)
            self._begin(call)
        self._wake()

    def _answer_with_next(self, requests: AsyncIterator[pb.CallsRequest]) -> bool:
        """Send the only result together with reading the next request, if possible: no other call
        may be running whose result would have to be sent before a request arrives."""
        results = self._results
        if not results or self._sleep is None or len(results[0].response) > SMALL_BYTES:
            return False
        if not isinstance(requests, Requests) or requests.call_below is None:
            return False
        requests.answer(results_out(results))
        self._pace.answered()
        self._count_sent(results)
        self._results = []
        return True

    def _begin(self, call: pb.Call, *, alone: bool = False) -> None:
        """Start a call. Calls that arrive together wait for a turn of the loop, so that puts become
        one append; one that arrived `alone` is answered immediately if possible."""
        begun = self._under_way.get(call.id)
        if call.cancel:
            if begun is not None:
                begun[0].cancel()
            return
        if begun is not None:
            raise InvalidArgumentError("calls.id", f"{call.id} is already in progress")
        method = self._methods.get(call.method)
        try:
            if method is None:
                raise InvalidArgumentError("calls.method", f"unknown method {call.method!r}")
            if call.timeout_ms < 0:
                raise InvalidArgumentError("calls.timeout_ms", f"{call.timeout_ms} is negative")
            self._enter(method)
        except Exception as error:  # noqa: BLE001 - the answer to this call says so
            self._refuse(call.id, call.method if method else "Calls", error)
            return
        if self._usage is not None:
            self._usage.count(len(call.request))  # rejected calls count too
        started = perf_counter()
        context = inner_context(self._peer, self._metadata, call.timeout_ms)
        try:
            request = method.decode(call.request)
            # None: it has to wait for something, and nothing was done.
            response = method.answer_now(request, context) if alone else None
        except Exception as error:  # noqa: BLE001 - the answer to this call says so
            self._refuse(call.id, method.name, error)
            self._leave(method, started)
            return
        if response is not None:
            self._answered(call.id, response)
            self._leave(method, started)
            return
        task = asyncio.create_task(self._answer(call.id, method, request, context))
        self._under_way[call.id] = task, method
        # Also of a task that is cancelled before it begins.
        task.add_done_callback(partial(self._ended, call.id, method, started))

    def _enter(self, method: Method) -> None:
        """Raises TooManyCallsError, UserLimitError."""
        self._gate.enter(method.kind, self._peer, self._user)
        if (usage := self._usage) is None:
            return
        try:
            usage.check()
            usage.begin(self._peer)
        except BaseException:
            self._gate.leave(method.kind, self._peer, self._user)
            raise

    async def _answer(
        self, call_id: int, method: Method, request: Message, context: Context
    ) -> None:
        CALLER.set(self._peer)
        try:
            response = await method.answer(request, context)
        except Exception as error:  # noqa: BLE001 - the answer to this call says so
            self._refuse(call_id, method.name, error)
            return
        self._answered(call_id, response)

    def _answered(self, call_id: int, response: bytes) -> None:
        if self._usage is not None:
            self._usage.count(len(response))
        self._add(Result(call_id, response))

    def _ended(self, call_id: int, method: Method, started: float, _: asyncio.Future[Any]) -> None:
        del self._under_way[call_id]
        self._leave(method, started)
        self._wake()

    def _leave(self, method: Method, started: float) -> None:
        self._gate.leave(method.kind, self._peer, self._user)
        if self._usage is not None:
            self._usage.end(self._peer)
        self._metrics.ended(method.name, perf_counter() - started)

    def _refuse(self, call_id: int, method: str, error: Exception) -> None:
        told = batch_error(self._metrics, method, error, self._request_id)
        self._add(Result(call_id, b"", told))


def _cancel(tasks: list[asyncio.Future[Any]]) -> None:
    # One by one, as each ends: freeing thousands at once would take half a turn.
    in_turns(tasks.pop().cancel for _ in range(len(tasks)))
