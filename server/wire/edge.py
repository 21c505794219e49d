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
from contextlib import aclosing, nullcontext
from functools import partial
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, Protocol

import grpc
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from server.access import Gatekeeper, Need, audit_act, current_caller, need_of
from server.errors import AccessError, MemoryFullError, UndecodableRequestError
from server.wire.call_errors import ending, tell
from server.wire.call_gate import CallGate, CallKind
from server.wire.call_info import CALL, CallInfo, request_id_of
from server.wire.log_limit import LogLimit
from server.wire.request_fields import check_counts, plan_of
from server.wire.request_limits import call_places, request_limit
from server.wire.request_memory import LARGE_BYTES, SMALL_BYTES, RequestMemory
from server.wire.status import INTERNAL_ROW, row_of
from server.workers import CALLER
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
    from contextlib import AbstractContextManager

    from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

    from server.access import Usage
    from server.config import ServerConfig
    from server.metrics import CallMetrics
    from server.wire.call_info import Context
    from server.wire.request_limits import RequestLimit
    from server.wire.status import Refusal

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

    def __init__(
        self, config: ServerConfig, metrics: CallMetrics, gatekeeper: Gatekeeper | None = None
    ) -> None:
        """Without a gatekeeper everyone may do everything."""
        self._config = config
        self._gatekeeper = gatekeeper
        self._metrics = metrics
        self.gate = CallGate(call_places(config))
        self.memory = RequestMemory(config.memory_limit_bytes, config.sent_limit_bytes)
        self._undecodable = LogLimit(monotonic)
        #: Methods of one request and one response, by name, for calls that share a stream.
        self.methods: dict[str, Method] = {}
        #: Those of them that may be named on a stream of calls.
        self.shared: dict[str, Method] = {}
        # One at a time: however many large requests there are, one is taken apart.
        self._decoder = ThreadPoolExecutor(1, thread_name_prefix="decoder")

    def reconfigure(self, config: ServerConfig) -> None:
        """Take the settings that may change at run time: places for calls, and memory."""
        self.gate.set_places(call_places(config))
        self.memory.set_limits(config.memory_limit_bytes, config.sent_limit_bytes)

    def close(self) -> None:
        """End the decoder's thread; no call is under way any more."""
        self.memory.close()
        self._decoder.shutdown(cancel_futures=True)

    def add(
        self,
        server: Registry,
        service: ServiceDescriptor,
        kind: type,
        servicer: Callable[[], object],
        *,
        shares_stream: bool = True,
    ) -> None:
        """Serve the methods of the service by those of the same names, of the class `kind`.

        `servicer` gives an object of it for each call, or raises what the call is refused with.
        Methods answer with a message or, where the loop should not encode it, with its bytes. One
        of a single request that has a parameter `large` is told whether its request is a large
        one; of a stream, `Requests.is_large` tells. A method `Put` may have a twin `Put_now`, no
        coroutine: see Method.answer_now. Those that do not share a stream cannot be named on one:
        it would be a way around the address they are served on.
        """
        handlers = {}
        for method in service.methods:
            if method.server_streaming:
                handlers[method.name] = grpc.stream_stream_rpc_method_handler(
                    self._stream(method, getattr(kind, method.name), servicer)
                )
            else:
                handlers[method.name] = grpc.stream_unary_rpc_method_handler(
                    self._unary(method, kind, servicer)
                )
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service.full_name, handlers),)
        )
        if shares_stream:
            self.shared.update(
                (name, self.methods[name]) for name in handlers if name in self.methods
            )

    def _unary(
        self,
        method: MethodDescriptor,
        kind: type,
        servicer: Callable[[], object],
    ) -> Callable[[object, Context], Awaitable[bytes]]:
        """A handler of one request and one response, in bytes."""
        name, metrics, memory = method.name, self._metrics, self.memory
        decoder = self._decoder_of(method)
        answers_large = request_limit(name, self._config).answers_large
        need = self._need_of(method)
        served = Method(
            decoder,
            getattr(kind, name),
            getattr(kind, f"{name}_now", None),
            servicer,
            memory if answers_large else None,
            need,
        )
        self.methods[name] = served

        async def call(requests: object, context: Context) -> bytes:
            started = perf_counter()
            del requests  # the context reads
            peer, size, may_be_large = "", 0, False
            try:
                peer = self._enter(decoder.kind, context, method, need)
                usage = current_caller().usage
                if usage is not None:
                    usage.check()
                if decoder.may_be_large:
                    await memory.begin_large(peer)
                    may_be_large = True
                request, size = await decoder.read(context)
                if usage is not None:
                    usage.took(size)  # also of what is refused
                if may_be_large and size <= LARGE_BYTES:
                    memory.end_large(peer, size)
                    may_be_large = False
                if request is None:
                    raise InvalidArgumentError("request", "is missing")
                data = await served.handle(request, context, large=size > DECODED_IN_LOOP_BYTES)
                if usage is not None:
                    usage.took(len(data))
                if len(data) > SMALL_BYTES:
                    memory.sends(len(data))
                    self._at_end(context, partial(memory.sent, len(data)))
                return data
            except Exception as error:  # noqa: BLE001 - the edge: everything becomes a status
                refusal = self._tell(name, error, context)
            finally:
                request = None  # see `ending`
                if size > LARGE_BYTES:
                    memory.end_decoding(size)
                if may_be_large:
                    memory.end_large(peer, size)
                metrics.ended(name, perf_counter() - started)
            end = ending(refusal, context)
            del context
            await end
            raise AssertionError("abort returned")

        return call

    def _stream(
        self,
        method: MethodDescriptor,
        handler: Callable[[object, Any, Context], AsyncGenerator[Message | bytes, None]],
        servicer: Callable[[], object],
    ) -> Callable[[object, Context], AsyncIterator[bytes]]:
        """A handler of many responses, to one request or many, in bytes."""
        name, metrics, memory = method.name, self._metrics, self.memory
        decoder = self._decoder_of(method)
        need = self._need_of(method)
        # What is on a stream of calls is measured call by call.
        is_measured = name != "Calls"

        async def call(requests: object, context: Context) -> AsyncIterator[bytes]:
            started = perf_counter()
            requests = Requests(decoder, context, memory)
            metrics.stream_began(name)
            try:
                self._enter(decoder.kind, context, method, need)
                usage = current_caller().usage if is_measured else None
                requests.usage = usage
                taken: object = requests
                if not method.client_streaming:
                    taken = await anext(requests, None)
                    if taken is None:
                        raise InvalidArgumentError("request", "is missing")
                if self._gatekeeper is not None:
                    need.check(current_caller(), taken)
                async with aclosing(handler(servicer(), taken, context)) as responses:
                    async for response in responses:
                        if self._gatekeeper is not None and taken is not requests:
                            need.check(current_caller(), taken)  # again: streams last for long
                        data = _encoded(response)
                        size = len(data)
                        if usage is not None:
                            await usage.pause()
                            usage.took(size)
                        if size <= SMALL_BYTES:
                            yield data
                            continue
                        memory.sends(size)
                        try:
                            yield data
                        finally:
                            memory.sent(size)
                return
            except Exception as error:  # noqa: BLE001 - the edge: everything becomes a status
                refusal = self._tell(name, error, context)
            finally:
                requests.end()
                # See `ending`.
                requests = taken = responses = response = None  # type: ignore[assignment]
                metrics.stream_ended(name)
                metrics.ended(name, perf_counter() - started)
            end = ending(refusal, context)
            del context
            await end

        return call

    def _decoder_of(self, method: MethodDescriptor) -> _Decoder:
        limit = request_limit(method.name, self._config)
        return _Decoder(method, limit, self._decoder, self.memory, self._config.max_receive_bytes)

    def _at_end(self, context: Context, act: Callable[[], None]) -> None:
        """Call `act` when the call is over: answered, its answer sent, or given up."""

        def ended(_: object) -> None:
            act()

        context.add_done_callback(ended)  # type: ignore[arg-type] # the stubs ask for two values

    def _enter(self, kind: CallKind, context: Context, method: MethodDescriptor, need: Need) -> str:
        """The connection. Raises TooManyCallsError, UnauthenticatedError, UserLimitError.

        The place is given back when the response has been sent.
        """
        peer = context.peer()
        call = CallInfo(method.name, context)
        CALL.set(call)
        gate = self.gate
        gate.enter(kind, peer)
        CALLER.set(peer)
        used: list[Usage] = []

        def ended(_: object) -> None:
            gate.leave(kind, peer)
            call.ended()
            for usage in used:
                usage.end(peer)

        context.add_done_callback(ended)  # type: ignore[arg-type] # as in _at_end
        if self._gatekeeper is not None:
            caller = self._gatekeeper.let_in(
                context.invocation_metadata(),
                method.containing_service.full_name,
                needs_user=need.user,
            )
            if caller.usage is not None:
                caller.usage.begin(peer)
                used.append(caller.usage)
        return peer

    def _need_of(self, method: MethodDescriptor) -> Need:
        return need_of(method.containing_service.full_name, method.name)

    def _tell(self, method: str, error: Exception, context: Context) -> Refusal:
        refusal = tell(self._metrics, method, error, request_id_of(context))
        if isinstance(error, UndecodableRequestError):
            peer = context.peer()
            if (left_out := self._undecodable.take(peer)) is not None:
                logger.warning("%s from %s: %s (%d more like it)", method, peer, error, left_out)
        return refusal


class Method:
    """A method of one request and one response."""

    def __init__(
        self,
        decoder: _Decoder,
        handler: Callable[..., Awaitable[Message | bytes]],
        handler_now: Callable[[Any, Any, Context], Message | None] | None,
        servicer: Callable[[], object],
        memory: RequestMemory | None,
        need: Need,
    ) -> None:
        self.name = decoder.method
        self.kind = decoder.kind
        self._handler_now = handler_now
        self._decoder = decoder
        self._handler = handler
        self._takes_size = "large" in inspect.signature(handler).parameters
        self._servicer = servicer
        self._memory = memory  # of large answers; None: it has none
        #: Around each `answer`, where calls are traced; those that come by themselves have a span.
        self.span: Callable[[str], AbstractContextManager[object]] | None = None
        self._check = need.check
        self._is_laborious = need.is_laborious
        self._target = need.target  # None: no administrative act

    async def handle(self, request: Message, context: Context, *, large: bool) -> bytes:
        """The encoded response to the request. Raises what the call is refused with."""
        if self._is_laborious is None or not self._is_laborious(request):
            self._check(current_caller(), request)
        else:
            await self._decoder.in_thread(self._check, current_caller(), request)
        if self._target is None:
            return await self._handle(request, context, large=large)
        target = self._target(request)
        try:
            data = await self._handle(request, context, large=large)
        except BaseException as error:
            if not isinstance(error, AccessError):  # that is a refusal, and audited as one
                row = row_of(error) or INTERNAL_ROW
                reason = row.reason if isinstance(error, Exception) else "CANCELLED"
                audit_act(self.name, target, request_id_of(context), (reason, str(error)))
            raise
        audit_act(self.name, target, request_id_of(context))
        return data

    async def _handle(self, request: Message, context: Context, *, large: bool) -> bytes:
        if self._memory is not None:
            await self._memory.room_to_send()
        size = {"large": large} if self._takes_size else {}
        return _encoded(await self._handler(self._servicer(), request, context, **size))

    async def answer(self, data: bytes, context: Context) -> bytes:
        """The same for an encoded request, which is short enough to be decoded in the loop."""
        request = self._decoder.decode(data)
        with nullcontext() if self.span is None else self.span(self.name):
            return await self.handle(request, context, large=False)

    def answer_now(self, data: bytes, context: Context) -> bytes | None:
        """The same without a turn of the loop, None when it takes one: then nothing was done."""
        waits = self._memory is not None or self._target is not None or self.span is not None
        if self._handler_now is None or waits:
            return None
        request = self._decoder.decode(data)
        self._check(current_caller(), request)
        response = self._handler_now(self._servicer(), request, context)
        return None if response is None else response.SerializeToString()


class _Decoder:
    """Reads and decodes the requests of one method."""

    def __init__(
        self,
        method: MethodDescriptor,
        limit: RequestLimit,
        thread: ThreadPoolExecutor,
        memory: RequestMemory,
        largest: int,
    ) -> None:
        self.method = method.name
        self.kind = limit.kind
        self.may_be_large = limit.waits_to_be_read
        self._limit = limit.request_bytes
        self._thread = thread
        self._memory = memory
        self._is_stream = limit.kind is CallKind.STREAM
        self._name = method.input_type.full_name
        self._class: type[Message] = GetMessageClass(method.input_type)
        self._plan = plan_of(method.input_type)
        # Requests with messages come large every time: these are counted when they are decoded
        # in the thread.
        self._counted = DECODED_IN_LOOP_BYTES if self._limit == largest else COUNTED_BYTES

    async def read(self, context: Context) -> tuple[Message | None, int]:
        """The next request, None when there is none, and the bytes it had.

        Above LARGE_BYTES `memory.end_decoding` must follow when it is no longer in use. Raises
        InvalidArgumentError, and MemoryFullError when it was cut to make room.
        """
        memory = self._memory
        memory.reading(context, is_stream=self._is_stream)
        try:
            data = await context.read()
        except asyncio.CancelledError:
            if not memory.is_cut(context):
                raise
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
            raise MemoryFullError("this request took long to arrive") from None
        finally:
            memory.read(context)
        if data is _EOF:
            return None, 0
        size = len(data)
        if size > LARGE_BYTES:
            memory.was_used()
        if size > self._limit:
            raise InvalidArgumentError("request", f"{size} bytes, more than {self._limit}")
        if size > LARGE_BYTES:
            await memory.begin_decoding(size)
            try:
                return await asyncio.wrap_future(self._thread.submit(self._decode, data)), size
            except BaseException:
                memory.end_decoding(size)
                raise
        if size > DECODED_IN_LOOP_BYTES:
            return await asyncio.wrap_future(self._thread.submit(self._decode, data)), size
        return self._decode(data), size

    async def in_thread(self, work: Callable[..., None], *args: object) -> None:
        """Do it where large requests are decoded."""
        await asyncio.wrap_future(self._thread.submit(work, *args))

    def decode(self, data: bytes) -> Message:
        """A request that is short enough to be decoded in the loop."""
        if len(data) > self._limit:
            raise InvalidArgumentError("request", f"{len(data)} bytes, more than {self._limit}")
        return self._decode(data)

    def _decode(self, data: bytes) -> Message:
        if self._plan and len(data) > self._counted:
            check_counts(data, self._plan)
        try:
            return self._class.FromString(data)
        except DecodeError as error:
            raise UndecodableRequestError(self._name, str(error)) from None


class Requests:
    """The requests of a stream: each is in use until the next is asked for."""

    def __init__(self, decoder: _Decoder, context: Context, memory: RequestMemory) -> None:
        self._decoder = decoder
        self._context = context
        self._memory = memory
        self._size = 0
        #: Of the user whose stream it is; None: it is not measured.
        self.usage: Usage | None = None

    def __aiter__(self) -> Requests:
        return self

    async def __anext__(self) -> Any:  # noqa: ANN401 - of the method's type
        self.end()
        usage = self.usage
        if usage is not None:
            await usage.pause()
        request, self._size = await self._decoder.read(self._context)
        if usage is not None:
            usage.took(self._size)
        if request is None:
            raise StopAsyncIteration
        return request

    @property
    def is_large(self) -> bool:
        """Whether the one taken last is."""
        return self._size > DECODED_IN_LOOP_BYTES

    def end(self) -> None:
        """The last request is no longer in use. Repeatable."""
        if self._size > LARGE_BYTES:
            self._memory.end_decoding(self._size)
        self._size = 0


def _encoded(response: Message | bytes) -> bytes:
    return response if isinstance(response, bytes) else response.SerializeToString()
