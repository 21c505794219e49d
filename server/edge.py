"""Where calls come in: each takes its place, its request is read, checked and decoded, and its
errors become statuses.

Handlers are registered from the services' descriptors, all of them as streams, also those of one
request: a stream's handler begins before anything is read. So a call that is refused for want of
room has cost no memory, and a request is decoded by us, who know how large and how numerous it may
be and what to answer when it is no protobuf. On the wire there is no difference.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, Protocol

import grpc
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from server.call_gate import CallGate
from server.errors import UndecodableRequestError
from server.interceptors import ending, request_id_of, tell
from server.log_limit import LogLimit
from server.request_fields import check_counts, plan_of
from server.request_limits import call_places, request_limit
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

    from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

    from server.call_gate import CallKind
    from server.config import ServerConfig
    from server.interceptors import Context
    from server.metrics import CallMetrics
    from server.status import Refusal

logger = logging.getLogger(__name__)

_EOF: object = grpc.aio.EOF  # type: ignore[attr-defined] # the stubs leave it out

#: A larger request is decoded in a thread of its own, after its fields were counted. What is
#: smaller takes 11 ms and 20 MB at worst, and half a millisecond as a rule. A full batch of our own
#: client has 256 KiB.
DECODED_IN_LOOP_BYTES = 320 << 10
#: Of the requests that name or list things, those above this are counted.
COUNTED_BYTES = 64 << 10


class Registry(Protocol):
    """What a grpc.aio.Server takes handlers by."""

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Any) -> None: ...  # noqa: ANN401


class Edge:
    """Owned by the event loop's thread."""

    def __init__(self, config: ServerConfig, metrics: CallMetrics) -> None:
        self._config = config
        self._metrics = metrics
        self.gate = CallGate(call_places(config))
        self._undecodable = LogLimit(monotonic)
        # One at a time: however many large requests there are, one is taken apart.
        self._decoder = ThreadPoolExecutor(1, thread_name_prefix="decoder")

    def close(self) -> None:
        """End the decoder's thread; no call is under way any more."""
        self._decoder.shutdown(cancel_futures=True)

    def add(self, server: Registry, service: ServiceDescriptor, servicer: object) -> None:
        """Serve the methods of the service by those of the same names.

        They answer with a message or, where the loop should not encode it, with its bytes. A method
        of one request that has a parameter `large` is told whether its request is a large one;
        of a stream, `Requests.is_large` tells.
        """
        handlers = {}
        for method in service.methods:
            handler = getattr(servicer, method.name)
            if method.server_streaming:
                handlers[method.name] = grpc.stream_stream_rpc_method_handler(
                    self._stream(method, handler)
                )
            else:
                handlers[method.name] = grpc.stream_unary_rpc_method_handler(
                    self._unary(method, handler)
                )
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service.full_name, handlers),)
        )

    def _unary(
        self, method: MethodDescriptor, handler: Callable[..., Awaitable[Message | bytes]]
    ) -> Callable[[object, Context], Awaitable[bytes]]:
        """A handler of one request and one response, in bytes."""
        name, metrics = method.name, self._metrics
        takes_size = "large" in inspect.signature(handler).parameters
        decoder = self._decoder_of(method)

        async def call(requests: object, context: Context) -> bytes:
            started = perf_counter()
            del requests  # the context reads
            try:
                self._enter(decoder.kind, context)
                request, large = await decoder.read(context)
                if request is None:
                    raise InvalidArgumentError("request", "is missing")
                if takes_size:
                    response = await handler(request, context, large=large)
                else:
                    response = await handler(request, context)
                return _encoded(response)
            except Exception as error:  # noqa: BLE001 - the edge: everything becomes a status
                refusal = self._tell(name, error, context)
            finally:
                request = response = None  # type: ignore[assignment] # see `ending`
                metrics.ended(name, perf_counter() - started)
            end = ending(refusal, context)
            del context
            await end
            raise AssertionError("abort returned")

        return call

    def _stream(
        self,
        method: MethodDescriptor,
        handler: Callable[[Any, Context], AsyncGenerator[Message | bytes, None]],
    ) -> Callable[[object, Context], AsyncIterator[bytes]]:
        """A handler of many responses, to one request or many, in bytes."""
        name, metrics = method.name, self._metrics
        decoder = self._decoder_of(method)

        async def call(requests: object, context: Context) -> AsyncIterator[bytes]:
            started = perf_counter()
            del requests
            try:
                self._enter(decoder.kind, context)
                taken: object = Requests(decoder, context)
                if not method.client_streaming:
                    taken, _ = await decoder.read(context)
                    if taken is None:
                        raise InvalidArgumentError("request", "is missing")
                async with aclosing(handler(taken, context)) as responses:
                    async for response in responses:
                        yield _encoded(response)
                return
            except Exception as error:  # noqa: BLE001 - the edge: everything becomes a status
                refusal = self._tell(name, error, context)
            finally:
                taken = responses = response = None  # type: ignore[assignment] # see `ending`
                metrics.ended(name, perf_counter() - started)
            end = ending(refusal, context)
            del context
            await end

        return call

    def _decoder_of(self, method: MethodDescriptor) -> _Decoder:
        limit = request_limit(method.name, self._config)
        return _Decoder(
            method, limit.request_bytes, limit.kind, self._decoder, self._config.max_receive_bytes
        )

    def _enter(self, kind: CallKind, context: Context) -> None:
        """Raises TooManyCallsError. The place is given back when the response has been sent."""
        peer = context.peer()
        gate = self.gate
        gate.enter(kind, peer)

        def leave(_: object) -> None:
            gate.leave(kind, peer)

        context.add_done_callback(leave)  # type: ignore[arg-type] # the stubs ask for two values

    def _tell(self, method: str, error: Exception, context: Context) -> Refusal:
        refusal = tell(self._metrics, method, error, request_id_of(context))
        if isinstance(error, UndecodableRequestError):
            peer = context.peer()
            if (left_out := self._undecodable.take(peer)) is not None:
                logger.warning("%s from %s: %s (%d more like it)", method, peer, error, left_out)
        return refusal


class _Decoder:
    """Reads and decodes the requests of one method."""

    def __init__(
        self,
        method: MethodDescriptor,
        limit: int,
        kind: CallKind,
        thread: ThreadPoolExecutor,
        largest: int,
    ) -> None:
        self.kind = kind
        self._limit = limit
        self._thread = thread
        self._name = method.input_type.full_name
        self._class: type[Message] = GetMessageClass(method.input_type)
        self._plan = plan_of(method.input_type)
        # Requests with messages come large every time: these are counted when they are decoded
        # in the thread.
        self._counted = DECODED_IN_LOOP_BYTES if limit == largest else COUNTED_BYTES

    async def read(self, context: Context) -> tuple[Message | None, bool]:
        """The next request, None when there is none; and whether it is large.

        Raises InvalidArgumentError.
        """
        data = await context.read()
        if data is _EOF:
            return None, False
        size = len(data)
        if size > self._limit:
            raise InvalidArgumentError("request", f"{size} bytes, more than {self._limit}")
        if size > DECODED_IN_LOOP_BYTES:
            return await asyncio.wrap_future(self._thread.submit(self._decode, data)), True
        return self._decode(data), False

    def _decode(self, data: bytes) -> Message:
        if self._plan and len(data) > self._counted:
            check_counts(data, self._plan)
        try:
            return self._class.FromString(data)
        except DecodeError as error:
            raise UndecodableRequestError(self._name, str(error)) from None


class Requests:
    """The requests of a stream."""

    def __init__(self, decoder: _Decoder, context: Context) -> None:
        self._decoder = decoder
        self._context = context
        self.is_large = False  # the one taken last

    def __aiter__(self) -> Requests:
        return self

    async def __anext__(self) -> Any:  # noqa: ANN401 - of the method's type
        request, self.is_large = await self._decoder.read(self._context)
        if request is None:
            raise StopAsyncIteration
        return request


def _encoded(response: Message | bytes) -> bytes:
    return response if isinstance(response, bytes) else response.SerializeToString()
