"""The entry point of calls: each is admitted, its request is read, checked and decoded, and its
errors become statuses.

Handlers are registered from the services' descriptors, all as streams, including those of a single
request, because a stream's handler starts before anything is read. So a rejected call has cost no
memory, and we decode requests ourselves, with our own limits of size and count, and our own error
for invalid protobuf. On the wire there is no difference.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

import grpc

from server.access import Gatekeeper, Need, asker, current_caller, need_of
from server.edge.busy_poll import BusyPoll
from server.edge.call_errors import ending, tell
from server.edge.call_gate import STREAMS, CallGate, CallKind
from server.edge.call_info import CALL, CallInfo, request_id_of
from server.edge.decoder import DECODED_IN_LOOP_BYTES, Decoder, Requests
from server.edge.method import Method, encoded
from server.edge.request_limits import PLACES, path_of, request_limit, shown_name
from server.edge.request_memory import LARGE_BYTES, SMALL_BYTES, RequestMemory
from server.errors import RequestLateError, TooManyCallsError, UndecodableRequestError
from server.process import LineLimit, machine_of, private_bytes
from server.workers import CALLER
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

    from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
    from google.protobuf.message import Message

    from server.access import Usage
    from server.config import ServerConfig
    from server.edge.call_info import Context
    from server.metrics import CallMetrics
    from server.wire import Refusal

    Refuse = Callable[[Refusal], bytes]

logger = logging.getLogger(__name__)

#: Refusals that tell of a client that is broken or hostile. The log has a line for each caller and
#: reason, and another one after this long, with the number of those that were left out.
_WORTH_A_LINE = (UndecodableRequestError, TooManyCallsError, RequestLateError)
REFUSALS_EVERY_S = 1.0
#: Calls on a stream of calls are measured and limited one by one.
_CALLS = "Calls"


class Registry(Protocol):
    """The part of grpc.aio.Server that registers handlers."""

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Any) -> None: ...  # noqa: ANN401


class Edge:
    """Registers services, and handles all their calls. Owned by the event loop's thread."""

    def __init__(
        self,
        config: ServerConfig,
        metrics: CallMetrics,
        gatekeeper: Gatekeeper | None = None,
        *,
        private: Callable[[], int] = private_bytes,
    ) -> None:
        """Without a gatekeeper all callers may do everything. `private` returns the private memory
        that the limit applies to: this process plus its fronts."""
        self._config = config
        self._gatekeeper = gatekeeper
        self._metrics = metrics
        self.gate = CallGate(PLACES)
        self.busy_poll = BusyPoll()
        self.memory = RequestMemory(config.memory_limit_bytes, private=private)
        self._refusals = LineLimit(1, every_s=REFUSALS_EVERY_S)
        #: Methods of one request and one response, by path.
        self.methods: dict[str, Method] = {}
        #: Methods that may be called on a stream of calls, by name without the service.
        self.shared: dict[str, Method] = {}
        self._sharing: dict[str, str] = {}  # their services
        # One at a time: however many large requests there are, one is taken apart.
        self._decoder = ThreadPoolExecutor(1, thread_name_prefix="decoder")

    def reconfigure(self, config: ServerConfig) -> None:
        """Apply the settings that can change at run time."""
        self.memory.set_limit(config.memory_limit_bytes)

    def close(self) -> None:
        """Stop the decoder's thread; no call may be running any more."""
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
        refuse: Refuse | None = None,
    ) -> None:
        """Serve the service's methods with the methods of the same names in the class `kind`.

        `servicer` returns an instance for each call, or raises the error that rejects it. Methods
        return a message, or its bytes if the loop should not encode it. A unary method with a
        parameter `large` is told whether its request is large; for streams see `Requests.is_large`.
        A method `Put` may have a non-coroutine twin `Put_now`: see Method.answer_now. Services
        without `shares_stream` cannot be called on a shared stream, which would bypass the address
        that they are served on.

        `refuse` encodes an error as a response, for clients that read it from there: the call then
        ends OK with it. Without it, the error is the status of the call. Raises ValueError if two
        services that share a stream have a method of the same name.
        """
        handlers = {}
        for method in service.methods:
            if method.server_streaming:
                handlers[method.name] = grpc.stream_stream_rpc_method_handler(
                    self._stream(method, getattr(kind, method.name), servicer, refuse)
                )
            else:
                handlers[method.name] = grpc.stream_unary_rpc_method_handler(
                    self._unary(method, kind, servicer, refuse)
                )
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service.full_name, handlers),)
        )
        for method in service.methods if shares_stream else ():
            served = self.methods.get(path_of(method))
            if served is None:
                continue  # a call of many requests or responses
            if self._sharing.setdefault(method.name, service.full_name) != service.full_name:
                raise ValueError(f"{method.name} is a method of two services that share a stream")
            self.shared[method.name] = served

    def _unary(
        self,
        method: MethodDescriptor,
        kind: type,
        servicer: Callable[[], object],
        refuse: Refuse | None,
    ) -> Callable[[object, Context], Awaitable[bytes]]:
        """A handler for one request and one response, in bytes."""
        name, metrics, memory = shown_name(method), self._metrics, self.memory
        decoder = self._decoder_of(method)
        answers_large = request_limit(method, self._config).answers_large
        need = self._need_of(method)
        served = Method(
            decoder,
            getattr(kind, method.name),
            getattr(kind, f"{method.name}_now", None),
            servicer,
            memory if answers_large else None,
            need,
        )
        self.methods[path_of(method)] = served

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
                    usage.count(size)  # rejected calls count too
                if may_be_large and size <= LARGE_BYTES:
                    memory.end_large(peer, size)
                    may_be_large = False
                if request is None:
                    raise InvalidArgumentError("request", "is missing")
                data = await served.handle(request, context, large=size > DECODED_IN_LOOP_BYTES)
                if usage is not None:
                    usage.count(len(data))
                if len(data) > SMALL_BYTES:
                    memory.sends(len(data), who := asker())
                    self._at_end(context, partial(memory.sent, len(data), who))
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
            if refuse is not None:
                return refuse(refusal)
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
        refuse: Refuse | None,
    ) -> Callable[[object, Context], AsyncIterator[bytes]]:
        """A handler for many responses to one or more requests, in bytes."""
        name, metrics, memory = shown_name(method), self._metrics, self.memory
        decoder = self._decoder_of(method)
        need = self._need_of(method)
        is_measured = name != _CALLS

        async def call(requests: object, context: Context) -> AsyncIterator[bytes]:
            started = perf_counter()
            requests = Requests(decoder, context, memory)
            metrics.stream_began(name)
            memory.streams += 1
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
                        data = encoded(response)
                        size = len(data)
                        if usage is not None:
                            await usage.pause()
                            usage.count(size)
                        if size <= SMALL_BYTES or not is_measured:
                            yield data
                            continue
                        memory.sends(size, who := asker())
                        try:
                            yield data
                        finally:
                            memory.sent(size, who)
                return
            except Exception as error:  # noqa: BLE001 - the edge: everything becomes a status
                refusal = self._tell(name, error, context)
            finally:
                requests.end()
                # See `ending`.
                requests = taken = responses = response = None  # type: ignore[assignment]
                memory.streams -= 1
                metrics.stream_ended(name)
                metrics.ended(name, perf_counter() - started)
            if refuse is not None:
                yield refuse(refusal)
                return
            end = ending(refusal, context)
            del context
            await end

        return call

    def _decoder_of(self, method: MethodDescriptor) -> Decoder:
        limit = request_limit(method, self._config)
        return Decoder(method, limit, self._decoder, self.memory, self._config.max_receive_bytes)

    def _at_end(self, context: Context, act: Callable[[], None]) -> None:
        """Call `act` when the call is over: its response was sent, or it was cancelled."""

        def ended(_: object) -> None:
            act()

        context.add_done_callback(ended)  # type: ignore[arg-type] # the stubs ask for two values

    def _enter(self, kind: CallKind, context: Context, method: MethodDescriptor, need: Need) -> str:
        """Admit the call; returns the connection. Raises TooManyCallsError, UnauthenticatedError,
        UserLimitError.

        The place is released when the response has been sent.
        """
        peer = context.peer()
        call = CallInfo(shown_name(method), context)
        CALL.set(call)
        CALLER.set(peer)
        user, usage = "", None
        if self._gatekeeper is not None:
            caller = self._gatekeeper.authenticate(
                context.invocation_metadata(),
                method.containing_service.full_name,
                needs_user=need.user,
            )
            user, usage = caller.name, caller.usage
        gate = self.gate
        if (kind is CallKind.OPEN or kind in STREAMS) and gate.is_half_full(kind):
            self.memory.readings.end_oldest(kind)
        gate.enter(kind, peer, user)
        used: list[Usage] = []
        carries = method.name == _CALLS

        def ended(_: object) -> None:
            gate.leave(kind, peer, user)
            call.ended()
            for each in used:
                each.end(peer, carries=carries)

        context.add_done_callback(ended)  # type: ignore[arg-type] # as in _at_end
        if usage is not None:
            usage.begin(peer, carries=carries)
            used.append(usage)
        return peer

    def _need_of(self, method: MethodDescriptor) -> Need:
        return need_of(method.containing_service.full_name, method.name)

    def _tell(self, method: str, error: Exception, context: Context) -> Refusal:
        refusal = tell(self._metrics, method, error, request_id_of(context))
        if isinstance(error, _WORTH_A_LINE):
            peer = context.peer()
            who = current_caller().name or machine_of(peer)
            left_out = self._refusals.take((who, refusal.reason))
            if left_out is not None:
                logger.warning(
                    "%s from %s: %s (%d similar lines omitted)", method, peer, error, left_out
                )
        return refusal
