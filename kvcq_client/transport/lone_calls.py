"""Calls of a thread that has its client for itself, without another thread in between.

A blocking call is a coroutine of the client's loop, which has a thread of its own. To go there and
to come back takes as long as all the rest of a small call. So the small calls of one thread at a
time go out on a stream that the thread itself writes and reads. It is a shortcut, and never the
only way: a caller who finds it taken, not open yet, or ended goes through the loop, which knows how
to wait for a server. So do all of them while answers come there in company: many calls in a message
are cheaper still. Nothing that the client does by itself, such as subscriptions, producers or
retries, is done by a caller: it goes on whether one is there or not.

What makes this safe where a signal's handler may raise between any two steps of the main thread:

* The stream and its channel are nobody else's. When anything but an answer ends a call, an
  interrupt above all, they are thrown away, with whatever they were in the midst of.
* A caller takes the stream away and brings it back. Nobody waits for it, and one that does not
  come back leaves nothing locked.
* A call goes out when the stream is known to be open: when the server was just heard, or it was
  looked. What comes to nothing before that was not sent, and goes through the loop.

The caller's thread could drive the loop itself instead. That takes away the same two changes of
thread, and costs more than they do: 215 us of processor time for a put, with a thread of its own
210, this way 55. And an exception of a signal's handler would end whatever task it met.

gRPC's calls for threads have a thread of their own for each direction of a stream. Below them is
what gRPC uses for a call without a stream: the caller waits for the next event of this one call. It
is not promised to stay, and is used with the releases that were measured; others go through the
loop.

While there is a channel of an event loop in the process, gRPC's thread for it waits for all
sockets, and each answer goes through it: 90 us. So the loop lets go of its channel while a thread
makes one call after the other, in a process that has no other client.
"""

from __future__ import annotations

import weakref
from contextlib import suppress
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar, cast

import grpc

from kvcq_client.errors import DeadlineError, KvcqError, UnavailableError
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.transport.below_grpc import cygrpc, is_plain_channel
from kvcq_client.transport.connection import check_may_go_again, may_be_parked
from kvcq_client.transport.own_stream import lone_request
from kvcq_client.transport.statuses import from_batch_error, from_shared_stream

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from google.protobuf.message import Message

    from kvcq_client.transport.connection import Connection
    from kvcq_client.transport.loop_thread import LoopThread

R = TypeVar("R")

#: Calls before a stream is opened: a script that asks a few things does without.
CALLS_BEFORE = 16
#: How often it is looked whether the time of a call is up, for a server that does not say so. A
#: call that has less than the second is timed by the loop.
LOOK_S = 0.25
#: Calls from one look to the next that are worth it to let go of the channel of the loop.
MANY_CALLS = 50
SHORTEST_S = 1.0
#: Behind an answer as young as this nobody looks whether the stream has ended: that takes 4 % of a
#: call. One that ends in that time ends the call as one under way.
FRESH_S = 0.001

_METHOD = b"/kvcq.v1.CallService/Calls"
_CODES: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}
#: What an event is of.
_SENT, _BEGUN, _ENDED, _ANSWER, _LOOKED = "sent", "begun", "ended", "answer", "looked"


class LoneStream:
    """A stream of calls, one at a time, on a channel of its own. One thread at a time; `cancel`
    from any."""

    def __init__(
        self,
        channel: Any,  # noqa: ANN401 - a grpc.Channel, whose stubs leave out what is below it
        headers: tuple[tuple[str, str], ...],
    ) -> None:
        """Begins to open it."""
        self._channel = channel
        self._status = cygrpc.ReceiveStatusOnClientOperation(0)
        operations = {
            _SENT: cygrpc.SendInitialMetadataOperation(headers, 0),
            _BEGUN: cygrpc.ReceiveInitialMetadataOperation(0),
            _ENDED: self._status,
        }
        try:
            self._call = channel._channel.segregated_call(  # noqa: SLF001 - see above
                cygrpc.PropagationConstants.GRPC_PROPAGATE_DEFAULTS,
                _METHOD,
                None,
                None,
                headers,
                None,
                [((operation,), tag) for tag, operation in operations.items()],
            )
        except BaseException:
            self._close_channel()
            raise
        self._due = len(operations)
        self._next_id = 0
        self._begun = False
        self.ended = False
        self.closed = False
        #: When the time of the call under way is up; for whoever watches it.
        self.end_s = inf
        self._heard_s = -inf  # when the server answered last

    def is_open(self) -> bool:
        """Whether the server has said that it is there, and nothing has ended the stream since."""
        if monotonic() - self._heard_s < FRESH_S:
            return not self.ended
        # An empty operation is over at once; what happened before it is told before it.
        if self._operate((), _LOOKED):
            self._until(_LOOKED)
        return self._begun and not self.ended

    def call(self, method: str, request: bytes, timeout_s: float) -> bytes:
        """The encoded response. Raises KvcqError; the stream may have ended then."""
        self._next_id += 1
        data = lone_request(self._next_id, method, request, timeout_s)
        send: tuple[object, ...] = (cygrpc.SendMessageOperation(data, 0),)
        while self._operate((*send, answer := cygrpc.ReceiveMessageOperation(0)), _ANSWER):
            self._until(_ANSWER)
            if (message := answer.message()) is None:
                break
            send = ()
            for result in pb.CallsResponse.FromString(message).results:
                if result.id == self._next_id:
                    if result.HasField("error"):
                        raise from_batch_error(result.error)
                    response: bytes = result.response
                    self._heard_s = monotonic()
                    return response
        self._drain()
        raise self._why()

    def cancel(self) -> None:
        """The call under way ends, and the stream with it. Repeatable."""
        self._call.cancel(cygrpc.StatusCode.cancelled, "the call was given up")

    def close(self) -> None:
        """End it. Not after an interrupt."""
        self.closed = True
        self.cancel()
        self._drain()
        self._close_channel()

    def abandon(self) -> None:
        """End it without waiting for anything: the event to wait for may have been lost. What
        that leaves behind in gRPC is 20 KB."""
        self.closed = True
        self.cancel()
        self._close_channel()

    def _close_channel(self) -> None:
        """By this thread and no other: an interrupt may have left it the lock of gRPC's channel,
        which that takes once more when it is collected, in whatever thread."""
        self._channel._call_state.channel = None  # noqa: SLF001 - nothing to close any more
        self._channel.close()

    def _operate(self, operations: tuple[object, ...], tag: str) -> bool:
        begun: bool = self._call.operate(operations, tag)
        self._due += begun
        return begun

    def _until(self, tag: str) -> None:
        while self._next() != tag:
            pass

    def _drain(self) -> None:
        while self._due:
            self._next()

    def _next(self) -> str:
        event = self._call.next_event()
        self._due -= 1
        tag: str = event.tag
        if tag == _BEGUN:
            self._begun = event.success
        elif tag == _ENDED:
            self.ended = True
        return tag

    def _why(self) -> KvcqError:
        code = _CODES.get(self._status.code(), grpc.StatusCode.UNKNOWN)
        if code is grpc.StatusCode.OK:
            return UnavailableError("the stream of calls ended")
        trailing = grpc.aio.Metadata(*self._status.trailing_metadata())
        return from_shared_stream(
            grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailing, self._status.details(), None)
        )


class LoneCalls:
    """The calls of blocking code. Thread: any."""

    def __init__(self, connection: Connection, thread: LoopThread) -> None:
        self._connection = connection
        self._thread = thread
        #: The stream, unless a caller has it. One that an interrupt keeps from coming back is
        #: gone: there is nothing that would have to be let go of.
        self._idle: list[LoneStream] = []
        #: It, wherever it is; for a moment two, when two threads open one at once.
        self._made: list[weakref.ref[LoneStream]] = []
        self._calls = 0  # without a stream
        self._may_open = cygrpc is not None  # until a channel turns out to be another kind
        self._asked = 0  # on the stream, since the last look
        self._is_looking = False
        self._closed = False

    async def call(
        self,
        method: Callable[..., Awaitable[R]],
        request: Message | bytes,
        timeout_s: float | None = None,
        *,
        may_repeat: bool = True,
    ) -> R:
        """As Connection.call. It never gives way: see `finished`."""
        self._thread.check_caller()
        connection = self._connection
        connection.check_open()
        limit_s = connection.limit_s(timeout_s)
        end_s = monotonic() + limit_s
        if connection.calls.is_lone and limit_s >= SHORTEST_S and not may_be_parked(request):
            shared = connection.shared(method, request)
            if shared is not None:
                name, data, kind = shared
                try:
                    answer = self._ask(name, data, limit_s)
                except KvcqError as error:
                    connection.check_open()  # closing ends the call under way
                    check_may_go_again(error, may_repeat=may_repeat)
                else:
                    if answer is not None:
                        return cast("R", kind.FromString(answer))
        return self._thread.run(
            connection.call(method, request, end_s - monotonic(), may_repeat=may_repeat)
        )

    def _ask(self, method: str, request: bytes, limit_s: float) -> bytes | None:
        """The answer; None: there is no way here now, and nothing was sent. Raises KvcqError."""
        try:
            stream = self._idle.pop()
        except IndexError:
            self._open()
            return None
        answer = None
        self._asked += 1
        try:
            if stream.is_open():
                stream.end_s = end_s = monotonic() + limit_s
                try:
                    answer = stream.call(method, request, limit_s)
                except KvcqError:
                    if stream.ended and monotonic() >= end_s:
                        raise DeadlineError(f"no answer within {limit_s:g} s") from None
                    raise
                finally:
                    stream.end_s = inf
        except KvcqError:
            self._give_back(stream)
            raise
        except BaseException:
            stream.abandon()
            raise
        self._give_back(stream)
        return answer

    def _open(self) -> None:
        """Begin to, if it is worth it. It opens by itself, while calls go through the loop."""
        self._calls += 1
        if self._calls <= CALLS_BEFORE or not self._may_open or self._streams():
            return
        self._calls = 0
        if not self._is_looking:  # before there is a call that nothing else would end
            self._thread.call_soon(self._look)
            self._is_looking = True
        try:
            channel, headers = self._connection.open_thread_channel()
        except OSError:  # certificates in the midst of being exchanged
            return
        if not is_plain_channel(channel):
            channel.close()
            self._may_open = False
            return
        stream = LoneStream(channel, headers)
        self._made.append(weakref.ref(stream))
        self._give_back(stream)

    def _give_back(self, stream: LoneStream) -> None:
        if stream.ended:
            stream.close()
        else:
            self._idle.append(stream)
        if self._closed:
            self.close()

    def _streams(self) -> list[LoneStream]:
        alive = (made() for made in tuple(self._made))
        return [stream for stream in alive if stream is not None and not stream.closed]

    def _look(self) -> None:
        """In the loop, again and again: end a call whose time is up, and see who waits for sockets.

        That is the caller alone while it makes one call after the other, and gRPC's thread
        otherwise: what the server says of its end in between is heard.
        """
        self._thread.loop.call_later(LOOK_S, self._look)  # first: nothing else ends a call
        for stream in self._streams():
            if monotonic() >= stream.end_s:
                stream.cancel()
        for made in tuple(self._made):
            if made() is None:
                self._made.remove(made)
        if self._asked >= MANY_CALLS:
            self._connection.let_go()
        else:
            self._connection.take_up()
        self._asked = 0

    def close(self) -> None:
        """End the stream, and the call under way. Repeatable."""
        self._closed = True
        with suppress(IndexError):
            while True:
                self._idle.pop().close()
        for stream in self._streams():
            stream.cancel()  # its caller closes it
