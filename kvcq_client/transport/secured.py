"""A channel with TLS and signed calls, whose files may change under it.

| header           | value                                                                    |
|------------------|--------------------------------------------------------------------------|
| `x-mq-date-time` | the time in UTC, `20240131T235959Z`                                      |
| `authorization`  | `MQv2-HMAC-SHA1 Credential=KEY, SignedHeaders=x-mq-date-time, Signature=…` |

The signature is the HMAC-SHA1 of the first header's value under the secret, in hex: the scheme of
RocketMQ 5's clients. It covers neither the request nor the answer; TLS does.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, time
from typing import TYPE_CHECKING, Any

import grpc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

DATE_TIME = "x-mq-date-time"
AUTHORIZATION = "authorization"
ALGORITHM = "MQv2-HMAC-SHA1"
#: What may stand in a header between the signs that divide it.
ACCESS_KEY_FORM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,127}")

#: Files are looked at when a call begins, this often.
_LOOK_EVERY_S = 1.0
#: Channels of former certificates whose streams may go on.
_OLD_CHANNELS = 2


@dataclass(frozen=True, kw_only=True)
class TLS:
    """Encrypt, and verify the server. Files are PEM, and are read again when they change.

    `ca`: who signs the server's certificate; None: the system's authorities. `cert` and `key`: of
    this client, where the server asks for one. `server_name`: the name in the server's certificate
    where it is not the host of the target. Raises ValueError.
    """

    ca: str | Path | None = None
    cert: str | Path | None = None
    key: str | Path | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise ValueError("tls: cert and key belong together: give both, or neither")

    @property
    def files(self) -> tuple[Path, ...]:
        """Those that are given."""
        return tuple(Path(each) for each in (self.ca, self.cert, self.key) if each is not None)

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """From the files as they are now. Raises OSError."""
        return grpc.ssl_channel_credentials(_read(self.ca), _read(self.key), _read(self.cert))


@dataclass(frozen=True)
class Credentials:
    """A user of the server: what every call is signed with. Raises ValueError."""

    access_key: str
    secret: str = field(repr=False)

    def __post_init__(self) -> None:
        if not (isinstance(self.access_key, str) and ACCESS_KEY_FORM.fullmatch(self.access_key)):
            raise ValueError(
                f"access_key: {self.access_key!r} is not 1 to 128 letters, digits, or . _ @ -"
            )
        if not (isinstance(self.secret, str) and self.secret):
            raise ValueError("secret: is empty")


def signature_of(secret: str, date_time: str) -> str:
    """In lower-case hex."""
    return hmac.new(secret.encode(), date_time.encode(), hashlib.sha1).hexdigest()


def stamps_of(files: Iterable[Path]) -> tuple[object, ...]:
    """Equal while none of the files was changed or replaced. Missing ones have a stamp too."""
    stamps: list[object] = []
    for file in files:
        try:
            found = file.stat()
        except OSError as error:
            stamps.append(error.errno)
        else:
            stamps.append((found.st_ino, found.st_size, found.st_mtime_ns))
    return tuple(stamps)


class Signer:
    """The headers of a call that begins now. Owned by one event loop."""

    def __init__(self, credentials: Credentials, now_s: Callable[[], float] = time) -> None:
        self._credentials = credentials
        self._now_s = now_s
        self._second = -1
        self._headers: tuple[tuple[str, str], ...] = ()

    def headers(self) -> tuple[tuple[str, str], ...]:
        """The same for all calls of a second."""
        second = int(self._now_s())
        if second != self._second:
            date_time = datetime.fromtimestamp(second, UTC).strftime("%Y%m%dT%H%M%SZ")
            signature = signature_of(self._credentials.secret, date_time)
            self._headers = (
                (DATE_TIME, date_time),
                (
                    AUTHORIZATION,
                    f"{ALGORITHM} Credential={self._credentials.access_key}, "
                    f"SignedHeaders={DATE_TIME}, Signature={signature}",
                ),
            )
            self._second = second
        return self._headers


def open_channel(
    target: str,
    options: Sequence[tuple[str, Any]],
    tls: TLS | None,
    credentials: Credentials | None,
) -> Any:  # noqa: ANN401 - a grpc.aio.Channel, or what stubs ask of one
    """A channel; the plain one of gRPC where nothing is secured. Raises OSError."""
    if tls is None and credentials is None:
        return grpc.aio.insecure_channel(target, options=options)
    return SecuredChannel(target, options, tls, credentials)


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


class SecuredChannel:
    """What stubs are made on. A new certificate is used by the calls and streams that begin after
    it came; those under way stay on the connection they have. Owned by one event loop."""

    def __init__(
        self,
        target: str,
        options: Sequence[tuple[str, Any]],
        tls: TLS | None,
        credentials: Credentials | None,
    ) -> None:
        self._target = target
        self._options = _named(options, tls)
        self._tls = tls
        self._signer = None if credentials is None else Signer(credentials)
        self._stamps: object = () if tls is None else stamps_of(tls.files)
        self._look_s = monotonic() + _LOOK_EVERY_S
        self._old: deque[grpc.aio.Channel] = deque()
        self._channel = self._open()

    def channel(self) -> grpc.aio.Channel:
        """The one for what begins now."""
        if self._tls is not None and monotonic() >= self._look_s:
            self._look_s = monotonic() + _LOOK_EVERY_S
            self._look_again(self._tls)
        return self._channel

    def headers(self) -> tuple[tuple[str, str], ...]:
        """The signature of a call that begins now; nothing where there are no credentials."""
        return () if self._signer is None else self._signer.headers()

    def get_state(self, *, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """Of the channel for what begins now."""
        return self.channel().get_state(try_to_connect=try_to_connect)

    async def close(self, grace: float | None = None) -> None:
        for each in (*self._old, self._channel):
            await each.close(grace)

    def unary_unary(self, *args: Any, **options: Any) -> Callable[..., Any]:  # noqa: ANN401
        return _Method(self, "unary_unary", args, options)

    def unary_stream(self, *args: Any, **options: Any) -> Callable[..., Any]:  # noqa: ANN401
        return _Method(self, "unary_stream", args, options)

    def stream_unary(self, *args: Any, **options: Any) -> Callable[..., Any]:  # noqa: ANN401
        return _Method(self, "stream_unary", args, options)

    def stream_stream(self, *args: Any, **options: Any) -> Callable[..., Any]:  # noqa: ANN401
        return _Method(self, "stream_stream", args, options)

    def _look_again(self, tls: TLS) -> None:
        stamps = stamps_of(tls.files)
        if stamps == self._stamps:
            return
        try:
            channel = self._open()
        except OSError:
            return  # half-way through a change: the old one serves until it is done
        self._stamps = stamps
        if len(self._old) == _OLD_CHANNELS:
            self._old.popleft()  # without a reference it ends with its last call
        self._old.append(self._channel)
        self._channel = channel

    def _open(self) -> grpc.aio.Channel:
        if self._tls is None:
            return grpc.aio.insecure_channel(self._target, options=self._options)
        return grpc.aio.secure_channel(
            self._target, self._tls.channel_credentials(), options=self._options
        )


class _Method:
    """One method, on the channel that is in use when it is called."""

    def __init__(
        self, owner: SecuredChannel, kind: str, args: tuple[Any, ...], options: dict[str, Any]
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
    """With the name that the certificate is to have."""
    if tls is None or tls.server_name is None:
        return [*options]
    return [*options, ("grpc.ssl_target_name_override", tls.server_name)]


def _read(file: str | Path | None) -> bytes | None:
    return None if file is None else Path(file).read_bytes()
