"""Limits HTTP connections: their number, and the time of each request.

aiohttp closes a connection that sends no request after a response. But it waits forever for the
first request and for the rest of a body, and logs a traceback for each request that it cannot
parse.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from aiohttp import web
from aiohttp.http import HttpProcessingError

from server.process import LineLimit

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp.typedefs import Handler

#: Connections of one site: its pages are for people and a few machines.
MOST_CONNECTIONS = 128
#: From the connection to the last header of its first request, with the handshake of TLS.
FIRST_REQUEST_S = 15.0
#: From the headers of a request to the end of its body, which is a form.
BODY_S = 15.0
_FORM = "application/x-www-form-urlencoded"


class Door:
    """The limits of one site. Owned by the event loop's thread."""

    def __init__(self) -> None:
        self._silent: set[asyncio.BaseProtocol] = set()  # connections without a request so far

    def factory(self, server: web.Server) -> Callable[[], asyncio.BaseProtocol]:
        """The protocol factory for `create_server`."""
        loop = asyncio.get_running_loop()

        def come_in() -> asyncio.BaseProtocol:
            if len(server.connections) >= MOST_CONNECTIONS:
                return _Refused()
            protocol = server()
            self._silent.add(protocol)
            loop.call_later(FIRST_REQUEST_S, self._close_silent, protocol)
            return protocol

        return come_in

    def _close_silent(self, protocol: web.RequestHandler) -> None:
        if protocol in self._silent:
            self._silent.discard(protocol)
            protocol.force_close()

    @web.middleware
    async def read_body(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """A middleware that reads bodies first, and only accepts forms.

        Raises HTTPRequestTimeout, HTTPRequestEntityTooLarge, HTTPUnsupportedMediaType and
        HTTPBadRequest.
        """
        if request.protocol is not None:
            self._silent.discard(request.protocol)
        if request.can_read_body:
            if request.content_type != _FORM:
                raise web.HTTPUnsupportedMediaType
            try:
                async with asyncio.timeout(BODY_S):
                    await request.read()
            except TimeoutError:
                raise web.HTTPRequestTimeout from None
            except (HttpProcessingError, ConnectionError):
                raise web.HTTPBadRequest from None
        return await handler(request)


class _Refused(asyncio.Protocol):
    """A connection beyond the limit."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


class BadRequests(logging.Filter):
    """A log filter: a request that aiohttp cannot parse is a line without a traceback, and each
    kind of line appears at most once a second."""

    def __init__(self) -> None:
        super().__init__()
        self._limit = LineLimit(1)

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        left_out = self._limit.take((type(error).__name__, str(record.msg)))
        if left_out is None:
            return False
        text = record.getMessage()
        if isinstance(error, HttpProcessingError):
            text = f"{text}: {type(error).__name__}"
            record.exc_info = None
            record.levelno, record.levelname = logging.WARNING, "WARNING"
        record.msg, record.args = f"{text} ({left_out} similar lines omitted)", ()
        return True
