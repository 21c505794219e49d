"""Finds out before the first call whether wrong TLS settings prevent a connection.

gRPC reports every failed handshake as an unavailable server, and may wait twenty seconds for a
server that speaks TLS when the client does not. The client would retry both until the deadline,
although only another setting helps. So the channel is watched until it is connected for the first
time. Later, a failed handshake is retried like any other lost connection, because certificates may
just be being replaced.
"""

from __future__ import annotations

import asyncio
import enum
import re
import ssl
from time import monotonic
from typing import TYPE_CHECKING, Any

import grpc

from kvcq_client.errors import HandshakeError
from kvcq_client.transport.loop_thread import in_background

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcq_client.transport.channel import Channel
    from kvcq_client.transport.secured import TLS

#: How long a server may be silent before it is probed for TLS, and how long the probe may take.
_SILENT_S = 1.0
_ANSWER_S = 2.0
_FIRST_LOOK_S = 0.001
_LAST_LOOK_S = 0.02

_HOST_AND_PORT = re.compile(r"(?:dns:/*|ipv[46]:)?\[?([^\s/\]]+)\]?:(\d{1,5})")
#: Patterns in the TLS library's messages: what is wrong, and what to do.
_FAULTS = tuple(
    (re.compile(pattern, re.IGNORECASE), text)
    for pattern, text in (
        (
            "wrong_version_number|not an? http/2|http_request|packet_length_too_long",
            "does not speak TLS: leave out tls=…, or the --tls-… options",
        ),
        (
            "certificate has expired",
            "has an expired certificate: it needs a new one",
        ),
        (
            "not yet valid",
            "has a certificate that is not valid yet: check the clocks of both machines",
        ),
        (
            "hostname|IP address mismatch",
            "has a certificate for other names: connect to one of them, or give "
            "tls=TLS(server_name=…)",
        ),
        (
            "CERTIFICATE_VERIFY_FAILED",
            "has a certificate of an authority that is not trusted here: name the one that "
            "signed it, with tls=TLS(ca=FILE) or --tls-ca FILE",
        ),
        ("handshake", "refuses TLS"),
    )
)
_REFUSES_CERTIFICATE = (
    "rejects this client's certificate: give one that its authority signed, with "
    "tls=TLS(cert=FILE, key=FILE) or --tls-cert and --tls-key"
)
_SPEAKS_TLS = (
    "speaks TLS: give tls=TLS(ca=FILE), or --tls-ca FILE, with the authority that signed its "
    "certificate"
)
_FAILED = (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN)


class _Answer(enum.Enum):
    """A server's reaction to a handshake."""

    NO_TLS = enum.auto()  # or none
    CLOSED = enum.auto()  # it spoke TLS, then closed the connection
    TAKEN = enum.auto()


class FirstContact:
    """The first contact of one connection. Owned by its event loop."""

    def __init__(
        self,
        target: str,
        channel: Channel,
        ask: Callable[..., Any],
        tls: TLS | None,
    ) -> None:
        """`ask`: a cheap method of the server that needs no credentials."""
        self._target = target
        self._channel = channel
        self._ask = ask
        self._tls = tls
        #: Whether the server has been reached.
        self.is_made = False
        self._look: asyncio.Task[str] | None = None

    async def wait(self, end_s: float | None = None) -> None:
        """Wait until the server has been reached, is unavailable, or `end_s` (monotonic) has come;
        the call itself then reports the outcome. Raises HandshakeError."""
        if self.is_made:
            return
        if self._look is None:
            self._look = in_background(self._find_fault(), "kvcq-first-contact")
        look = self._look
        left_s = None if end_s is None else max(0.0, end_s - monotonic())
        await asyncio.wait((look,), timeout=left_s)
        if not look.done() or look.cancelled():
            return
        if self._look is look:
            self._look = None
        if fault := look.result():
            raise HandshakeError(f"the server at {self._target} {fault}")

    def close(self) -> None:
        """Stop watching. Repeatable."""
        if self._look is not None:
            self._look.cancel()

    async def _find_fault(self) -> str:
        """What is wrong with TLS, or "" if nothing is known to be wrong."""
        silent_s = monotonic() + _SILENT_S
        look_s = _FIRST_LOOK_S
        while True:
            state = self._channel.get_state(try_to_connect=True)
            if state is grpc.ChannelConnectivity.READY:
                self.is_made = True
                return ""
            if state in _FAILED or monotonic() > silent_s:
                return await (self._why_no_tls() if self._tls else self._whether_tls())
            await asyncio.sleep(look_s)
            look_s = min(2 * look_s, _LAST_LOOK_S)

    async def _whether_tls(self) -> str:
        answer = await _handshake(self._target, None)
        return "" if answer is _Answer.NO_TLS else _SPEAKS_TLS

    async def _why_no_tls(self) -> str:
        try:
            await self._ask(b"", timeout=_ANSWER_S)
        except grpc.aio.AioRpcError as error:
            text = error.details() or ""
            for pattern, fault in _FAULTS:
                if pattern.search(text):
                    return fault
        # gRPC drops the server's alert about the client's certificate.
        answer = await _handshake(self._target, self._tls)
        return _REFUSES_CERTIFICATE if answer is _Answer.CLOSED else ""


async def _handshake(target: str, tls: TLS | None) -> _Answer:
    """Try a handshake with the client's certificate, accepting any certificate of the server."""
    found = _HOST_AND_PORT.fullmatch(target)
    if found is None:  # such as a Unix socket
        return _Answer.NO_TLS
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        if tls is not None and tls.cert is not None and tls.key is not None:
            context.load_cert_chain(tls.cert, tls.key)
        async with asyncio.timeout(_ANSWER_S):
            reader, writer = await asyncio.open_connection(found[1], int(found[2]), ssl=context)
            try:
                # TLS 1.3 rejects a client certificate only after the handshake.
                return _Answer.TAKEN if await reader.read(1) else _Answer.CLOSED
            finally:
                writer.transport.abort()
    except ssl.SSLError as error:
        return _Answer.CLOSED if "ALERT" in (error.reason or "") else _Answer.NO_TLS
    except (OSError, TimeoutError):
        return _Answer.NO_TLS
