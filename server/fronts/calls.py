"""The calls of one front, as the owner of the store serves them.

The handlers are those for a gRPC server, with a context that implements what they use of gRPC's. So
limits, memory bounds, users and errors are the same, and see the same peers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sized
from contextlib import aclosing
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import grpc

from server.errors import MemoryFullError
from server.fronts import frames
from server.fronts.frames import Ending
from server.receiving import EOF

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Sequence

    from server.fronts.frames import Link, Metadata

logger = logging.getLogger(__name__)

_OK = Ending(0, "", ())
#: After a request that is not larger the front may read the next one before it is asked for, of a
#: method that takes none above a megabyte.
_SMALL_BYTES = 64 << 10
_AHEAD_BYTES = 1 << 20
#: Bytes that one front may have read before they were requested. Each stream whose client sends
#: requests and reads no responses may have one request here.
UNREAD_BYTES = 64 << 20


class FrontMethod(NamedTuple):
    """What a front has to know about a method."""

    path: str
    many_requests: bool
    many_responses: bool
    #: Its request is not read before its handler asks for it: that may be long after.
    waits_to_be_read: bool
    #: The handler refuses a request that is larger, by its size.
    most_bytes: int


class CallDetails(NamedTuple):
    """The argument of a grpc.GenericRpcHandler or an interceptor."""

    method: str
    invocation_metadata: Metadata


class _Unread:
    """Requests of one front that arrived before they were requested."""

    size = 0


class FrontContext:
    """The used part of grpc.aio.ServicerContext. Owned by the event loop's thread."""

    __slots__ = (
        "_callbacks",
        "_deadline_s",
        "_is_half_closed",
        "_is_read_ahead",
        "_link",
        "_may_read",
        "_metadata",
        "_number",
        "_peer",
        "_reader",
        "_request",
        "_unread",
        "_unwritten",
        "_writer",
    )

    def __init__(
        self,
        link: Link,
        number: int,
        opening: frames.Opening,
        method: FrontMethod,
        unread: _Unread,
    ) -> None:
        self._link = link
        self._unread = unread
        self._number = number
        self._peer = opening.peer
        self._deadline_s = opening.deadline_s
        self._metadata = opening.metadata
        self._callbacks: list[Callable[[object], None]] = []
        # The front may send one more request, and has not sent it yet.
        self._may_read = not method.waits_to_be_read and opening.request is None
        self._is_read_ahead = method.many_requests and method.most_bytes <= _AHEAD_BYTES
        self._request: bytes | MemoryFullError | None = opening.request
        self._is_half_closed = False
        self._reader: asyncio.Future[None] | None = None
        self._unwritten = 0
        self._writer: asyncio.Future[None] | None = None

    def peer(self) -> str:
        return self._peer

    def invocation_metadata(self) -> Metadata:
        return frames.unpack_metadata(self._metadata)

    def time_remaining(self) -> float | None:
        if self._deadline_s == frames.NEVER:
            return None
        return max(0.0, self._deadline_s - monotonic())

    def add_done_callback(self, callback: Callable[[object], None]) -> None:
        self._callbacks.append(callback)

    async def send_initial_metadata(self, metadata: Sequence[object]) -> None:
        assert not metadata, "there is no frame for it"
        self._link.send(frames.HEADERS, self._number)

    async def read(self) -> object:
        """The next request, bytes or a memoryview; EOF at the end. Raises MemoryFullError if it
        arrived early and there was no room for it."""
        while self._request is None:
            if self._is_half_closed:
                return EOF
            self._let_read()
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        request, self._request = self._request, None
        if isinstance(request, MemoryFullError):
            raise request
        if self._is_read_ahead:
            self._unread.size -= len(request)
        if self._is_read_ahead and len(request) <= _SMALL_BYTES:
            self._let_read()
        return request

    async def write(self, response: bytes) -> None:
        """Returns once the connection has taken all responses except for the window's worth."""
        self._link.send(frames.MESSAGE, self._number, response)
        self._unwritten += frames.weight_of(response)
        while self._unwritten >= frames.WINDOW_BYTES:
            self._writer = asyncio.get_running_loop().create_future()
            try:
                await self._writer
            finally:
                self._writer = None

    async def abort(
        self, code: grpc.StatusCode, details: str = "", trailing_metadata: Metadata = ()
    ) -> NoReturn:
        """End the call with that status. Raises grpc.aio.AbortError."""
        number: int = code.value[0]
        self.end(Ending(number, details, trailing_metadata))
        raise grpc.aio.AbortError

    # --- what `FrontCalls` uses ------------------------------------------------------------

    def answer(self, response: bytes) -> None:
        """End the call with its only response."""
        self._link.send(frames.RESULT, self._number, response)

    def end(self, ending: Ending) -> None:
        self._link.send(frames.STATUS, self._number, frames.pack_ending(ending))

    def came(self, request: bytes) -> None:
        self._request = request
        if self._is_read_ahead:
            if self._reader is None and self._unread.size + len(request) > UNREAD_BYTES:
                self._request = MemoryFullError("too many responses are waiting for slow readers")
            else:
                self._unread.size += len(request)
        self._may_read = False
        self._wake(self._reader)

    def half_closed(self) -> None:
        self._is_half_closed = True
        self._wake(self._reader)

    def written(self, weight: int) -> None:
        self._unwritten -= weight
        self._wake(self._writer)

    def is_over(self) -> None:
        """The front has ended the call, and its handler has finished. Further writes are ignored,
        and waiting writers are released, which ends a call without a task."""
        self._unwritten = 0
        self._wake(self._writer)
        request, self._request = self._request, None
        if self._is_read_ahead and isinstance(request, Sized):
            self._unread.size -= len(request)
        for callback in self._callbacks:
            callback(self)
        self._callbacks.clear()

    def _let_read(self) -> None:
        if not self._may_read:
            self._may_read = True
            self._link.send(frames.READ, self._number)

    @staticmethod
    def _wake(waiter: asyncio.Future[None] | None) -> None:
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


class Handlers:
    """The handlers of all methods, in the order of `methods`; a Registry for `Edge`."""

    def __init__(
        self,
        methods: Sequence[FrontMethod],
        interceptor: grpc.aio.ServerInterceptor[Any, Any] | None,
    ) -> None:
        self.methods = methods
        self._interceptor = interceptor
        self._generic: list[Any] = []
        self._found: dict[int, Any] = {}

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Iterable[Any]) -> None:
        self._generic += generic_rpc_handlers

    async def of(self, method: int, context: FrontContext) -> Any:  # noqa: ANN401 - grpc's own type
        """The method's handler for one call."""
        if self._interceptor is None:
            return self._handler(method)

        async def handler(details: CallDetails) -> object:
            return self._handler(method)

        details = CallDetails(self.methods[method].path, context.invocation_metadata())
        return await self._interceptor.intercept_service(handler, details)  # type: ignore[arg-type]

    def _handler(self, method: int) -> Any:  # noqa: ANN401 - grpc's own type
        found = self._found.get(method)
        if found is None:
            details = CallDetails(self.methods[method].path, ())
            [found] = filter(None, (one.service(details) for one in self._generic))
            self._found[method] = found
        return found


class FrontCalls:
    """The calls of one front. Owned by the event loop's thread."""

    def __init__(self, handlers: Handlers, link: Link) -> None:
        self._handlers = handlers
        self._link = link
        self._under_way: dict[int, tuple[FrontContext, asyncio.Task[None]]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._unread = _Unread()
        #: Calls since the front was started.
        self.count = 0

    def take(self, kind: int, number: int, body: bytes) -> None:
        """Process a frame of a call."""
        if kind == frames.OPEN:
            self._begin(number, body)
            return
        context, task = self._under_way[number]  # nothing follows the end of a call
        if kind == frames.MESSAGE:
            context.came(body)
        elif kind == frames.TOO_LARGE:
            # Zeros that are never read take no memory; only their number matters.
            context.came(bytes(frames.NUMBER.unpack(body)[0]))
        elif kind == frames.ENDED:
            del self._under_way[number]
            self._end(context, task)
        elif kind == frames.WRITTEN:
            context.written(frames.NUMBER.unpack(body)[0])
        else:
            assert kind == frames.HALF_CLOSED, kind
            context.half_closed()

    def lost(self) -> None:
        """The front is gone, and so are its clients' connections."""
        under_way, self._under_way = self._under_way, {}
        for context, task in under_way.values():
            self._end(context, task)

    def _begin(self, number: int, body: bytes) -> None:
        self.count += 1
        opening = frames.unpack_opening(body)
        method = self._handlers.methods[opening.method]
        context = FrontContext(self._link, number, opening, method, self._unread)
        task = asyncio.create_task(self._serve(context, opening.method, method))
        self._under_way[number] = context, task

    def _end(self, context: FrontContext, task: asyncio.Task[None]) -> None:
        if task.done():
            context.is_over()
            return
        self._ending.add(task)
        task.cancel()

        def ended(_: asyncio.Task[None]) -> None:
            self._ending.discard(task)
            context.is_over()

        task.add_done_callback(ended)

    async def _serve(self, context: FrontContext, at: int, method: FrontMethod) -> None:
        """Run the handler. Raises CancelledError if the call is cancelled."""
        try:
            handler = await self._handlers.of(at, context)
            if not method.many_responses:
                context.answer(await handler.stream_unary(None, context))
                return
            responses: AsyncGenerator[bytes, None] = handler.stream_stream(None, context)
            async with aclosing(responses):
                async for response in responses:
                    await context.write(response)
            context.end(_OK)
        except grpc.aio.AbortError:
            pass  # the caller has been notified
        except Exception as error:  # as gRPC does, which tells the caller as little
            logger.exception("%s failed", method.path)
            context.end(Ending(2, f"Unexpected {type(error)}", ()))
