"""A gRPC channel that is replaced when certificate files change.

Calls and streams that start after the change use the new certificates; those in flight stay on
their connection.
"""

from __future__ import annotations

from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Any

import grpc

from kvcq_client.transport.secured import Signer, stamps_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kvcq_client.transport.secured import TLS, Credentials

#: How often certificate files are checked, at the start of a call.
_LOOK_EVERY_S = 1.0
#: How many channels with former certificates are kept for their streams.
_OLD_CHANNELS = 2


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
        self._old: deque[grpc.aio.Channel] = deque()
        self._closed = False
        self._channel = self._open()

    def channel(self) -> grpc.aio.Channel:
        """The channel for new calls. Raises UsageError when closed."""
        if self._closed:
            raise grpc.aio.UsageError("the channel is closed")
        if self._tls is not None and monotonic() >= self._look_s:
            self._look_s = monotonic() + _LOOK_EVERY_S
            self._look_again(self._tls)
        return self._channel

    def headers(self) -> tuple[tuple[str, str], ...]:
        """The signature headers of a new call; empty without credentials."""
        return () if self._signer is None else self._signer.headers()

    def get_state(self, *, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """The connectivity of the channel for new calls."""
        return self.channel().get_state(try_to_connect=try_to_connect)

    async def close(self, grace: float | None = None) -> None:
        """End all calls. Repeatable."""
        self._closed = True
        for each in (*self._old, self._channel):
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
        return _Method(self, kind, args, options)

    def _look_again(self, tls: TLS) -> None:
        stamps = stamps_of(tls.files)
        if stamps == self._stamps:
            return
        try:
            secured = tls.channel_credentials()
            tls.check_files()
        except OSError:
            return  # files are half replaced: keep the old channel until they are complete
        if stamps_of(tls.files) != stamps:
            return  # a change is in progress
        self._secured, self._stamps = secured, stamps
        if len(self._old) == _OLD_CHANNELS:
            self._old.popleft()  # unreferenced, it closes after its last call
        self._old.append(self._channel)
        self._channel = self._open()

    def _open(self) -> grpc.aio.Channel:
        if self._secured is None:
            return grpc.aio.insecure_channel(self._target, options=self._options)
        return grpc.aio.secure_channel(self._target, self._secured, options=self._options)


class _Method:
    """A method that uses the channel that is current when it is called."""

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


def _named(options: Sequence[tuple[str, Any]], tls: TLS | None) -> list[tuple[str, Any]]:
    """The options, with the server name that the certificate must have."""
    if tls is None or tls.server_name is None:
        return [*options]
    return [*options, ("grpc.ssl_target_name_override", tls.server_name)]
