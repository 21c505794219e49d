"""What stubs are made on: a channel of gRPC's, which may be exchanged for another one.

For a new certificate: the calls and streams that begin after it came use it; those under way stay
on the connection they have. And it may be let go of, when nothing is under way on it, until
something begins: gRPC has a thread for the channels of all event loops, which waits for the sockets
of the whole process and would come between a thread and its own.

With the last of those channels gRPC closes the socket by which that thread told its loops, from the
thread of the last one. Another loop that reads it at that moment would say so in the log. So a
channel is let go of while no loop but its own has had one.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from sys import getrefcount
from time import monotonic
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import grpc

from kvcq_client.transport.secured import Signer, stamps_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kvcq_client.transport.secured import TLS, Credentials

#: Files are looked at when a call begins, this often.
_LOOK_EVERY_S = 1.0
#: Channels of former certificates whose streams may go on.
_OLD_CHANNELS = 2


class _Loops:
    """The event loops of this process that had such a channel. Thread: any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loops: WeakSet[asyncio.AbstractEventLoop] = WeakSet()

    def add(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            self._loops.add(loop)

    def is_alone(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether all others are closed."""
        with self._lock:
            return all(each is loop or each.is_closed() for each in self._loops)


def _references(channel: Any) -> int:  # noqa: ANN401 - the stubs leave out what is below it
    """To gRPC's own object, which whatever is under way on the channel has one to."""
    inner = channel._channel  # noqa: SLF001 - see above
    return getrefcount(inner)


_loops = _Loops()
#: When nothing but the channel has one; how many whoever counts has depends on the interpreter.
_UNUSED = _references(SimpleNamespace(_channel=object()))


class Channel:
    """Owned by one event loop."""

    def __init__(
        self,
        target: str,
        options: Sequence[tuple[str, Any]],
        tls: TLS | None,
        credentials: Credentials | None,
    ) -> None:
        """Raises OSError when a file cannot be read."""
        self._target = target
        self._options = _named(options, tls)
        self._tls = tls
        self._secured = None if tls is None else tls.channel_credentials()
        self._signer = None if credentials is None else Signer(credentials)
        self._stamps: object = () if tls is None else stamps_of(tls.files)
        self._look_s = monotonic() + _LOOK_EVERY_S
        self._methods: list[_Method] = []
        self._old: deque[grpc.aio.Channel] = deque()
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._channel: grpc.aio.Channel | None = self._open()

    def channel(self) -> grpc.aio.Channel:
        """The one for what begins now. Raises UsageError when it is closed."""
        if self._closed:
            raise grpc.aio.UsageError("the channel is closed")
        if self._tls is not None and monotonic() >= self._look_s:
            self._look_s = monotonic() + _LOOK_EVERY_S
            self._look_again(self._tls)
        if self._channel is None:
            self._channel = self._open()
        return self._channel

    def let_go(self) -> None:
        """Unless something is under way on it. Repeatable; `channel` makes another one."""
        if not _loops.is_alone(self._loop):
            return
        for method in self._methods:
            method.forget()
        # gRPC ends its thread with the last reference, which has to be given up in this one.
        self._old = deque(each for each in self._old if _references(each) > _UNUSED)
        if self._channel is not None and _references(self._channel) == _UNUSED:
            self._channel = None

    def headers(self) -> tuple[tuple[str, str], ...]:
        """The signature of a call that begins now; nothing where there are no credentials."""
        return () if self._signer is None else self._signer.headers()

    def get_state(self, *, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """Of the channel for what begins now."""
        return self.channel().get_state(try_to_connect=try_to_connect)

    async def close(self, grace: float | None = None) -> None:
        """Repeatable. What was under way has the last references."""
        self._closed = True
        for method in self._methods:
            method.forget()
        channels = [*self._old, self._channel]
        self._old.clear()
        self._channel = None
        while channels:
            if (each := channels.pop()) is not None:
                await each.close(grace)

    def unary_unary(self, *args: Any, **options: Any) -> Callable[..., Any]:  # noqa: ANN401
        return self._method("unary_unary", args, options)

    def unary_stream(self, *args: Any, **options: Any) -> Callable[..., Any]:  # noqa: ANN401
        return self._method("unary_stream", args, options)

    def stream_unary(self, *args: Any, **options: Any) -> Callable[..., Any]:  # noqa: ANN401
        return self._method("stream_unary", args, options)

    def stream_stream(self, *args: Any, **options: Any) -> Callable[..., Any]:  # noqa: ANN401
        return self._method("stream_stream", args, options)

    def _method(self, kind: str, args: tuple[Any, ...], options: dict[str, Any]) -> _Method:
        method = _Method(self, kind, args, options)
        self._methods.append(method)
        return method

    def _look_again(self, tls: TLS) -> None:
        stamps = stamps_of(tls.files)
        if stamps == self._stamps:
            return
        try:
            secured = tls.channel_credentials()
            tls.check_files()
        except OSError:
            return  # half-way through a change: the old one serves until it is done
        if stamps_of(tls.files) != stamps:
            return  # in the midst of one
        self._secured, self._stamps = secured, stamps
        if self._channel is None:
            return
        if len(self._old) == _OLD_CHANNELS:
            self._old.popleft()  # without a reference it ends with its last call
        self._old.append(self._channel)
        self._channel = None

    def _open(self) -> grpc.aio.Channel:
        _loops.add(self._loop)
        if self._secured is None:
            return grpc.aio.insecure_channel(self._target, options=self._options)
        return grpc.aio.secure_channel(self._target, self._secured, options=self._options)


class _Method:
    """One method, on the channel that is in use when it is called."""

    def __init__(
        self, owner: Channel, kind: str, args: tuple[Any, ...], options: dict[str, Any]
    ) -> None:
        self._owner = owner
        self._kind = kind
        self._args = args
        self._options = options
        self._made_on: grpc.aio.Channel | None = None
        self._method: Callable[..., Any] | None = None

    def __call__(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - a call of gRPC
        channel = self._owner.channel()
        if self._method is None or channel is not self._made_on:
            self._method = getattr(channel, self._kind)(*self._args, **self._options)
            self._made_on = channel
        assert self._method is not None
        headers = self._owner.headers()
        if headers:
            options["metadata"] = (*options.get("metadata", ()), *headers)
        return self._method(*args, **options)

    def forget(self) -> None:
        """That it was called: it is made again."""
        self._made_on = self._method = None


def open_thread_channel(
    target: str,
    options: Sequence[tuple[str, Any]],
    tls: TLS | None,
    credentials: Credentials | None,
) -> tuple[grpc.Channel, tuple[tuple[str, str], ...]]:
    """A channel for threads, of the certificates that are there now, and the headers of a call
    that begins now. Raises OSError."""
    headers = () if credentials is None else Signer(credentials).headers()
    if tls is None:
        return grpc.insecure_channel(target, options=options), headers
    secured = tls.channel_credentials()
    return grpc.secure_channel(target, secured, options=_named(options, tls)), headers


def _named(options: Sequence[tuple[str, Any]], tls: TLS | None) -> list[tuple[str, Any]]:
    """With the name that the certificate is to have."""
    if tls is None or tls.server_name is None:
        return [*options]
    return [*options, ("grpc.ssl_target_name_override", tls.server_name)]
