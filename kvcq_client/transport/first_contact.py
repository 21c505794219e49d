"""The first contact with a server: whether TLS is why there is none.

gRPC calls every failure of a handshake a server that is away, and may wait twenty seconds for a
server that takes TLS when the client does not. Both would be tried until the time is up, though
nothing but another setting helps. So before the first call the channel is watched until it is
connected. Once it was, a handshake that fails is tried again like any other loss: certificates may
be in the midst of being exchanged.
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

#: How long a server may be silent before it is asked whether it speaks TLS, and for the answer.
_SILENT_S = 1.0
_ANSWER_S = 2.0
_FIRST_LOOK_S = 0.001
_LAST_LOOK_S = 0.02

_HOST_AND_PORT = re.compile(r"(?:dns:/*|ipv[46]:)?\[?([^\s/\]]+)\]?:(\d{1,5})")
#: What the TLS library says: what is wrong, and what to do about it.
_FAULTS = tuple(
    (re.compile(pattern, re.IGNORECASE), text)
    for pattern, text in (
        (
            "wrong_version_number|not an? http/2|http_request|packet_length_too_long",
            "does not speak TLS: leave out tls=…, or the --tls-… options",
        ),
        (
            "certificate has expired",
            "shows a certificate that has expired: it needs a new one",
        ),
        (
            "not yet valid",
            "shows a certificate that is not valid yet: look at the clocks of both machines",
        ),
        (
            "hostname|IP address mismatch",
            "shows a certificate with other names: connect to one of them, or give "
            "tls=TLS(server_name=…)",
        ),
        (
            "CERTIFICATE_VERIFY_FAILED",
            "shows a certificate of an authority that is not trusted here: name the one that "
            "signed it, with tls=TLS(ca=FILE) or --tls-ca FILE",
        ),
        ("handshake", "refuses TLS"),
    )
)
_REFUSES_CERTIFICATE = (
    "does not take this client's certificate: one that its authority signed is given with "
    "tls=TLS(cert=FILE, key=FILE) or --tls-cert and --tls-key"
)
_SPEAKS_TLS = (
    "speaks TLS: give tls=TLS(ca=FILE), or --tls-ca FILE, with the authority that signed its "
    "certificate"
)
_FAILED = (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN)


class _Answer(enum.Enum):
    """Of a server, to a handshake."""

    NO_TLS = enum.auto()  # or none at all
    CLOSED = enum.auto()  # it spoke TLS, and then no more
    TAKEN = enum.auto()


class FirstContact:
    """Of one connection. Owned by its event loop."""

    def __init__(
        self,
        target: str,
        channel: Channel,
        ask: Callable[..., Any],
        tls: TLS | None,
    ) -> None:
        """`ask`: a method of the server that is cheap, and answers whoever calls."""
        self._target = target
        self._channel = channel
        self._ask = ask
        self._tls = tls
        #: The server was reached once.
        self.is_made = False
        self._look: asyncio.Task[str] | None = None

    async def wait(self, end_s: float | None = None) -> None:
        """Returns when the server was reached once, or is away, or the time is up (monotonic):
        then the call tells what there is. Raises HandshakeError."""
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
        """Repeatable."""
        if self._look is not None:
            self._look.cancel()

    async def _find_fault(self) -> str:
        """What is wrong with TLS; empty: nothing, as far as is known."""
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
        # gRPC drops what the server says of the client's certificate.
        answer = await _handshake(self._target, self._tls)
        return _REFUSES_CERTIFICATE if answer is _Answer.CLOSED else ""


async def _handshake(target: str, tls: TLS | None) -> _Answer:
    """What one comes to there, with the certificate of `tls`; the server may show any."""
    found = _HOST_AND_PORT.fullmatch(target)
    if found is None:  # a socket of the file system, say
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
                # A certificate is refused when the handshake is over.
                return _Answer.TAKEN if await reader.read(1) else _Answer.CLOSED
            finally:
                writer.transport.abort()
    except ssl.SSLError as error:
        return _Answer.CLOSED if "ALERT" in (error.reason or "") else _Answer.NO_TLS
    except (OSError, TimeoutError):
        return _Answer.NO_TLS
