"""Where calls come in: each takes its place, its request is read, checked and decoded, and its
errors become statuses.

Handlers are registered from the services' descriptors, all of them as streams, also those of one
request: a stream's handler begins before anything is read. So a call that is refused for want of
room has cost no memory, and a request is decoded by us, who know how large and how numerous it may
be and what to answer when it is no protobuf. On the wire there is no difference.
"""

from __future__ import annotations

import asyncio
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
#: smaller takes 20 ms and 30 MB at worst, and half a millisecond as a rule.
DECODED_IN_LOOP_BYTES = 512 << 10
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
        """Serve the methods of the service by those of the same names."""
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
        self, method: MethodDescriptor, handler: Callable[[Any, Context], Awaitable[Message]]
    ) -> Callable[[object, Context], Awaitable[bytes]]:
        """A handler of one request and one response, in bytes."""
        name, metrics = method.name, self._metrics
        decoder = self._decoder_of(method)

        async def call(requests: object, context: Context) -> bytes:
            started = perf_counter()
            del requests  # the context reads
            try:
                self._enter(decoder.kind, context)
                request = await decoder.read(context)
                if request is None:
                    raise InvalidArgumentError("request", "is missing")
                response = await handler(request, context)
                return response.SerializeToString()
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
        handler: Callable[[Any, Context], AsyncGenerator[Message, None]],
    ) -> Callable[[object, Context], AsyncIterator[bytes]]:
        """A handler of many responses, to one request or many, in bytes."""
        name, metrics = method.name, self._metrics
        decoder = self._decoder_of(method)

        async def call(requests: object, context: Context) -> AsyncIterator[bytes]:
            started = perf_counter()
            del requests
            try:
                self._enter(decoder.kind, context)
                taken: object = _Requests(decoder, context)
                if not method.client_streaming:
                    taken = await decoder.read(context)
                    if taken is None:
                        raise InvalidArgumentError("request", "is missing")
                async with aclosing(handler(taken, context)) as responses:
                    async for response in responses:
                        yield response.SerializeToString()
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

    async def read(self, context: Context) -> Message | None:
        """The next request; None when there is none. Raises InvalidArgumentError."""
        data = await context.read()
        if data is _EOF:
            return None
        size = len(data)
        if size > self._limit:
            raise InvalidArgumentError("request", f"{size} bytes, more than {self._limit}")
        if size > DECODED_IN_LOOP_BYTES:
            return await asyncio.wrap_future(self._thread.submit(self._decode, data))
        return self._decode(data)

    def _decode(self, data: bytes) -> Message:
        if self._plan and len(data) > self._counted:
            check_counts(data, self._plan)
        try:
            return self._class.FromString(data)
        except DecodeError as error:
            raise UndecodableRequestError(self._name, str(error)) from None


class _Requests:
    """The requests of a stream."""

    def __init__(self, decoder: _Decoder, context: Context) -> None:
        self._decoder = decoder
        self._context = context

    def __aiter__(self) -> _Requests:
        return self

    async def __anext__(self) -> Message:
        request = await self._decoder.read(self._context)
        if request is None:
            raise StopAsyncIteration
        return request
