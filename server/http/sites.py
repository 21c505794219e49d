"""Starts and stops aiohttp applications with the server."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from typing import TYPE_CHECKING, NamedTuple

from server.errors import HttpBindError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from aiohttp import web

logger = logging.getLogger(__name__)

#: A connection that asks for nothing is closed. Prometheus asks again within its interval.
KEEPALIVE_S = 75.0
#: Responses in progress may take this long when the server ends; the data they need is closed by
#: then.
SHUTDOWN_S = 1.0
#: How long aiohttp waits for the rest of a request that was already answered with an error.
LINGERING_S = 1.0


class Site(NamedTuple):
    """One application on one address."""

    name: str  # its settings are <name>_host and <name>_port
    host: str
    port: int  # 0: any free one
    app: web.Application
    tls: ssl.SSLContext | None = None


class HttpSites:
    """All of them. Owned by the event loop's thread."""

    def __init__(self) -> None:
        self._sites: list[Site] = []
        self._listening: list[tuple[web.AppRunner, asyncio.Server | None]] = []
        #: Ports of the sites that were started, by name.
        self.ports: dict[str, int] = {}

    def add(self, site: Site) -> None:
        """Add a site, served from `start` on."""
        self._sites.append(site)

    async def start(self) -> None:
        """Listen, in the order of `add`. Raises HttpBindError; `stop` must follow in any case."""
        if not self._sites:
            return
        from aiohttp import web  # see __init__.py

        from server.http.door import BadRequests, Door

        requests_log = logging.getLogger(f"{__name__}.requests")
        if not requests_log.filters:
            requests_log.addFilter(BadRequests())
        for site in self._sites:
            door = Door()
            site.app.middlewares.insert(0, door.read_body)
            runner = web.AppRunner(
                site.app,
                handle_signals=False,  # the server has handlers of its own
                access_log=None,
                logger=requests_log,
                keepalive_timeout=KEEPALIVE_S,
                lingering_time=LINGERING_S,
                shutdown_timeout=SHUTDOWN_S,
            )
            self._listening.append((runner, None))
            await runner.setup()
            assert runner.server is not None
            listener = await _listen(door.factory(runner.server), site)
            self._listening[-1] = runner, listener
            self.ports[site.name] = listener.sockets[0].getsockname()[1]
            scheme = "http" if site.tls is None else "https"
            host = f"[{site.host}]" if ":" in site.host else site.host
            logger.info("%s: %s://%s:%d/", site.name, scheme, host, self.ports[site.name])

    async def stop(self) -> None:
        """Stop listening, last one first, and end running requests. Repeatable."""
        while self._listening:
            runner, listener = self._listening.pop()
            if listener is not None:
                listener.close()
            await runner.cleanup()


async def _listen(factory: Callable[[], asyncio.BaseProtocol], site: Site) -> asyncio.Server:
    """Raises HttpBindError. Like gRPC: a second server on the port must fail."""
    try:
        return await asyncio.get_running_loop().create_server(
            factory,
            site.host,
            site.port,
            ssl=site.tls,
            reuse_address=True,
            reuse_port=False,
        )
    except OSError as error:
        # asyncio puts its own words around those of the system.
        number = error.errno or errno.EADDRNOTAVAIL
        reason = OSError(number, os.strerror(number)) if number > 0 else error
        raise HttpBindError(site.name, site.host, site.port, reason) from error
