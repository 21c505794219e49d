"""A connection to one server: calls with a deadline, retried while the server is unavailable.

A call with `may_repeat` False, such as a plain `put`, is never sent twice; all others may be. A
producer numbers its puts, so that repeating them stores nothing twice.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import re
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import grpc

from kvcq_client.arguments import number, of_kind
from kvcq_client.errors import (
    ClosedError,
    DeadlineError,
    KvcqError,
    RetryableError,
    UnavailableError,
)
from kvcq_client.pb.v1 import (
    access_pb2_grpc,
    jobs_pb2_grpc,
    kvcq_pb2_grpc,
    lite_topics_pb2_grpc,
    migration_pb2_grpc,
    shared_groups_pb2_grpc,
    timers_pb2_grpc,
    transactions_pb2,
    transactions_pb2_grpc,
)
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.pb.v1 import shared_groups_pb2 as shared_pb
from kvcq_client.transport.call_stream import LARGEST_BYTES, CallStream
from kvcq_client.transport.channel import Channel
from kvcq_client.transport.first_contact import FirstContact
from kvcq_client.transport.forks import ForkedError, begin_grpc, close_in_children
from kvcq_client.transport.proxies import DIRECT, is_direct
from kvcq_client.transport.secured import TLS, Credentials
from kvcq_client.transport.statuses import from_rpc, is_retried
from kvcq_client.transport.turns import Turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence

    from google.protobuf.message import Message


logger = logging.getLogger(__name__)

Q = TypeVar("Q")
R = TypeVar("R")

DEFAULT_TARGET = "127.0.0.1:8081"
DEFAULT_TIMEOUT_S = 30.0
#: Backoff before a retry, doubling from the first value to the last. Each wait is shortened by up
#: to half at random, so that clients of a server that restarts do not all return at once.
FIRST_WAIT_S = 0.05
LAST_WAIT_S = 2.0
#: How often to check during a backoff whether the server is back.
_LOOK_S = 0.05

#: Keepalive: a dead peer is noticed after about 30 s, even if nothing is being sent.
_OPTIONS: tuple[tuple[str, Any], ...] = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    # Reconnect to a server that restarts within half a second.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
)


#: Most calls in flight, not counting pulls; further calls wait for their turn. The server rejects
#: more than some thousands on one connection.
CALLS_UNDER_WAY = 1000

_HOST_AND_PORT = re.compile(r"[^\s/]+:(\d{1,5})")
#: Such as unix:/run/kvcq.sock or dns:///name:8081. gRPC would take http: as part of a host name.
_WITH_SCHEME = re.compile(r"(?!https?:)[a-z][a-z0-9+.-]*:/\S+|unix(-abstract)?:\S+")


class Backoff:
    """Exponential backoff. Not shared between tasks."""

    def __init__(self) -> None:
        self._next_s = FIRST_WAIT_S

    def next_s(self) -> float:
        """How long to wait before the next try."""
        wait_s = self._next_s
        self._next_s = min(wait_s * 2, LAST_WAIT_S)
        return wait_s * (0.5 + random.random() / 2)

    def reset(self) -> None:
        """Start again with short waits, after something has worked."""
        self._next_s = FIRST_WAIT_S


def raise_unless_retryable(error: KvcqError, *, may_repeat: bool) -> None:
    """Return if a call that failed with the error may be retried; otherwise raise the error for its
    caller."""
    repeatable = may_repeat or not (isinstance(error, RetryableError) and error.may_be_done)
    if repeatable and is_retried(error):
        return
    if not repeatable and type(error) is UnavailableError and not error.reason:
        error = UnavailableError(f"{error.message}; the server may have executed the call")
    raise error from None


def may_be_parked(request: Message | bytes) -> bool:
    """Whether the server may hold the call for long, so that it must not occupy the own stream."""
    return isinstance(request, pb.PullRequest | shared_pb.ReceiveRequest) and bool(request.wait_ms)


def is_target(target: object) -> bool:
    """Whether the target is HOST:PORT or another form that gRPC accepts."""
    if not isinstance(target, str):
        return False
    found = _HOST_AND_PORT.fullmatch(target)
    return bool(_WITH_SCHEME.fullmatch(target) or (found and 0 < int(found[1]) <= 65_535))


class Caller(Protocol):
    """The type of Connection.call."""

    async def __call__(
        self,
        method: Callable[..., Awaitable[R]],
        request: Message | bytes,
        timeout_s: float | None = None,
        *,
        may_repeat: bool = True,
        late: Callable[[bytes], None] | None = None,
    ) -> R: ...


class Connection:
    """A channel and the stubs on it. Owned by the event loop that it was made in."""

    def __init__(
        self,
        target: str,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        options: Sequence[tuple[str, Any]] = (),
        tls: TLS | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        if not is_target(target):
            raise ValueError(f"target: {target!r} is not HOST:PORT, such as {DEFAULT_TARGET}")
        of_kind("tls", tls, TLS, or_none=True)
        of_kind("credentials", credentials, Credentials, or_none=True)
        if not isinstance(options, list | tuple):
            raise TypeError(f"options: expected a list of pairs, not {type(options).__name__}")
        begin_grpc()
        self.target = target
        self.timeout_s = number("timeout_s", timeout_s)
        direct = (DIRECT,) if is_direct(target, os.environ) else ()
        # Each name only once, because gRPC uses the first of two.
        chosen = {**dict(_OPTIONS), **dict(direct), **dict(options)}
        # Typed as Any, because the stubs expect a channel of gRPC, and only need what this one has.
        self._channel: Any = Channel(target, [*chosen.items()], tls, credentials)
        self.messages = kvcq_pb2_grpc.MessageServiceStub(self._channel)
        self.topics = kvcq_pb2_grpc.TopicServiceStub(self._channel)
        self.groups = kvcq_pb2_grpc.GroupServiceStub(self._channel)
        self.shared_groups = shared_groups_pb2_grpc.SharedGroupServiceStub(self._channel)
        self.timers = timers_pb2_grpc.TimerServiceStub(self._channel)
        self.transactions = transactions_pb2_grpc.TransactionServiceStub(self._channel)
        self.lite_topics = lite_topics_pb2_grpc.LiteTopicServiceStub(self._channel)
        self.admin = kvcq_pb2_grpc.AdminServiceStub(self._channel)
        self.access = access_pb2_grpc.AccessServiceStub(self._channel)
        self.jobs = jobs_pb2_grpc.JobServiceStub(self._channel)
        self.migration = migration_pb2_grpc.MigrationServiceStub(self._channel)
        #: Raw bytes; an empty request asks whether the server is alive.
        self.health = self._channel.unary_unary("/grpc.health.v1.Health/Check")
        self._first = FirstContact(target, self._channel, self.health, tls)
        # Requests are encoded by format/outgoing.py.
        self.put_stream = self._channel.stream_stream(
            "/kvcq.v1.MessageService/PutStream",
            request_serializer=None,
            response_deserializer=pb.PutStreamResponse.FromString,
        )
        self.subscribe = self._channel.stream_stream(
            "/kvcq.v1.MessageService/Subscribe",
            request_serializer=pb.SubscribeRequest.SerializeToString,
            response_deserializer=pb.SubscribeResponse.FromString,
        )
        self.call_stream = CallStream(kvcq_pb2_grpc.CallServiceStub(self._channel).Calls)
        # Methods whose small calls go over the shared stream.
        self._sharing: dict[object, tuple[str, type[Message]]] = {
            self.messages.Put: ("Put", pb.PutResponse),
            self.messages.Pull: ("Pull", pb.PullResponse),
            self.groups.CommitOffsets: ("CommitOffsets", pb.CommitOffsetsResponse),
            self.shared_groups.Receive: ("Receive", shared_pb.ReceiveResponse),
            self.shared_groups.Acknowledge: ("Acknowledge", shared_pb.AcknowledgeResponse),
            self.shared_groups.ChangeInvisibleTime: (
                "ChangeInvisibleTime",
                shared_pb.ChangeInvisibleTimeResponse,
            ),
            self.shared_groups.GiveBack: ("GiveBack", shared_pb.GiveBackResponse),
            self.transactions.BeginTransaction: (
                "BeginTransaction",
                transactions_pb2.BeginTransactionResponse,
            ),
            self.transactions.DecideTransaction: (
                "DecideTransaction",
                transactions_pb2.DecideTransactionResponse,
            ),
        }
        # Thousands of them may be parked, so they take no turn.
        self._parking = (self.messages.Pull, self.shared_groups.Receive)
        self._turns = Turns(CALLS_UNDER_WAY)
        self._warned_of_pulls = False
        self._closed = False
        self._forked: ForkedError | None = None
        close_in_children(self)

    async def call(
        self,
        method: Callable[..., Awaitable[R]],
        request: Message | bytes,
        timeout_s: float | None = None,
        *,
        may_repeat: bool = True,
        late: Callable[[bytes], None] | None = None,
    ) -> R:
        """Return the response, retrying until `timeout_s`. Raises KvcqError; UnavailableError only
        when the time is up, HandshakeError at once. `late` is called with an encoded response that
        comes when its caller has gone."""
        end_s = monotonic() + self.limit_s(timeout_s)
        shared = self._shared(method, request)
        parked = may_be_parked(request)
        takes_turn = method not in self._parking
        backoff: Backoff | None = None  # most calls need none
        before: KvcqError | None = None  # why the try before failed
        while True:
            self.check_open()
            if not self._first.is_made:
                await self.first_contact(end_s)
            try:
                if shared is not None and (own := self.call_stream.own) is not None and not parked:
                    name, data, kind = shared
                    left_s = max(0.001, end_s - monotonic())
                    return cast("R", kind.FromString(await own.call(name, data, left_s, late)))
                if takes_turn and not self._turns.take():
                    await self._turn(end_s)
                try:
                    left_s = max(0.001, end_s - monotonic())
                    if shared is None:
                        # A call that may not be repeated waits for a connection, and is sent once.
                        return await method(request, timeout=left_s, wait_for_ready=not may_repeat)
                    name, data, kind = shared
                    light_queues = None
                    if isinstance(request, pb.PutRequest):
                        names = request.message.light_queues
                        light_queues = len(set(names)) if names else 0
                    answer = await self.call_stream.call(name, data, left_s, light_queues, late)
                    # A put that was joined with others comes back as its place.
                    whole = kind.FromString(answer) if isinstance(answer, bytes) else answer
                    return cast("R", whole)
                finally:
                    if takes_turn:
                        self._turns.give()
            except (grpc.aio.AioRpcError, KvcqError) as rpc_error:
                error = rpc_error if isinstance(rpc_error, KvcqError) else from_rpc(rpc_error)
                if parked and error.reason == "TOO_MANY_CALLS":
                    self._warn_of_pulls(error)
                if before and may_repeat and isinstance(error, DeadlineError) and self._is_away():
                    raise before from None  # this try had too little time to fail like it
                raise_unless_retryable(error, may_repeat=may_repeat)
                before = error
            except (asyncio.CancelledError, grpc.aio.UsageError):
                self.check_open()  # `close` cancels calls in flight
                raise
            backoff = backoff or Backoff()
            wait_s = backoff.next_s()
            if monotonic() + wait_s >= end_s:
                raise error
            try:
                if await self.rest(wait_s):
                    backoff.reset()
            except asyncio.CancelledError:
                self.check_open()  # `close` cancels backoffs
                raise

    def _is_away(self) -> bool:
        state = self._channel.get_state(try_to_connect=True)
        return state is not grpc.ChannelConnectivity.READY

    async def rest(self, wait_s: float) -> bool:
        """Back off for `wait_s`, or until an unavailable server is reached again.

        Returns whether the latter happened, after a short random delay that keeps many clients from
        returning at once. Raises ClosedError.
        """
        end_s = monotonic() + wait_s
        is_away = False
        while (left_s := end_s - monotonic()) > 0:
            self.check_open()
            if self._is_away():
                is_away = True
            elif is_away:
                await asyncio.sleep(random.random() * min(left_s, _LOOK_S))
                return True
            await asyncio.sleep(min(left_s, _LOOK_S))
        return False

    async def stream(
        self, method: Callable[..., AsyncIterable[R]], request: Message
    ) -> AsyncIterator[R]:
        """Yield the responses to one request until the server ends the stream. Raises KvcqError."""
        await self.first_contact()
        try:
            async for response in method(request):
                yield response
        except grpc.aio.AioRpcError as error:
            raise from_rpc(error) from None
        except (asyncio.CancelledError, grpc.aio.UsageError):
            self.check_open()  # `close` cancels calls in flight
            raise

    async def first_contact(self, end_s: float | None = None) -> None:
        """Must precede each call: see FirstContact. Raises HandshakeError, ClosedError."""
        self.check_open()
        await self._first.wait(end_s)
        self.check_open()

    def _warn_of_pulls(self, error: KvcqError) -> None:
        """Warn once that pulls are rejected and retried, which callers would only notice late."""
        if not self._warned_of_pulls:
            self._warned_of_pulls = True
            logger.warning(
                "the server at %s rejects pulls that wait for messages: %s. They are retried with "
                "growing delays. A consumer follows up to a million queues over one stream: "
                'client.consumer(["%%LMQ%%a", "%%LMQ%%b", …])',
                *(self.target, error.message),
            )

    async def _turn(self, end_s: float) -> None:
        try:
            await self._turns.wait(end_s - monotonic())
        except TimeoutError:
            raise DeadlineError(
                f"this client has {CALLS_UNDER_WAY} calls in flight, and none ended in time"
            ) from None

    def _shared(self, method: object, request: Message | bytes) -> tuple[str, bytes, Any] | None:
        """Name, encoded request and response type for the shared stream; None for a gRPC call."""
        sharing = self._sharing.get(method)
        if sharing is None or isinstance(request, bytes):
            return None
        data = request.SerializeToString()
        return (sharing[0], data, sharing[1]) if len(data) <= LARGEST_BYTES else None

    def limit_s(self, timeout_s: float | None) -> float:
        """The timeout of a call. Raises TypeError, ValueError."""
        return self.timeout_s if timeout_s is None else number("timeout_s", timeout_s)

    def check_open(self) -> None:
        """Raise ClosedError if closed, and ForkedError in a forked child."""
        if self._forked is not None:
            raise self._forked
        if self._closed:
            raise ClosedError(f"the client of {self.target} is closed")

    def after_fork(self, error: ForkedError) -> None:
        """See Forkable. The channel belongs to the parent and is not touched."""
        self._forked = error

    async def close(self) -> None:
        """End all calls. Repeatable."""
        self._closed = True
        if self._forked is not None:
            return
        self._first.close()
        await self.call_stream.close()
        await self._channel.close(None)
