"""Endpoints for machines: /metrics, /livez and /readyz.

The two probes return what grpc.health.v1 returns for "" and "kvcq.ready", and need no
authentication. /metrics has names of topics and groups, and needs a user if the server has users.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.workers import CALLER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp import web

    from server.stage import Stage

OK, UNAUTHORIZED, TOO_MANY, _NOT_SERVING = 200, 401, 429, 503


def monitoring_app(
    stage: Stage,
    metrics: Callable[[], Awaitable[tuple[bytes, str]]],
    authenticate: Callable[[str, str, str], int] = lambda _address, _name, _secret: OK,
) -> web.Application:
    """`metrics` returns the text for Prometheus, and its content type. `authenticate` returns the
    status for an address, name and secret: OK, UNAUTHORIZED or TOO_MANY; name and secret are empty
    if none are given.

    A probe returns 200 and `ok`, or 503 and a line with the reason. A problem that stops nothing,
    such as a clock that jumped, follows the `ok`.
    """
    from aiohttp import web  # see __init__.py

    def answer(why_not: str | None, remark: str | None = None) -> web.Response:
        ok = "ok" if remark is None else f"ok, but {remark}"
        status, text = (OK, ok) if why_not is None else (_NOT_SERVING, why_not)
        return web.Response(status=status, text=f"{text}\n", headers={"Cache-Control": "no-store"})

    async def livez(_: web.Request) -> web.Response:
        return answer("the server is shutting down" if stage.is_draining else None)

    async def readyz(_: web.Request) -> web.Response:
        return answer(stage.why_not_ready, stage.remark)

    async def scrape(request: web.Request) -> web.Response:
        address = request.remote or ""
        CALLER.set(f"http:{address}")  # for the audit
        status = authenticate(address, *_credentials(request.headers.get("Authorization", "")))
        if status == TOO_MANY:
            text = "too many wrong secrets for this name; try again in 30 seconds\n"
            return web.Response(status=status, text=text)
        if status != OK:
            return web.Response(
                status=status,
                text="metrics require the name and secret of a user: basic_auth in Prometheus\n",
                headers={"WWW-Authenticate": 'Basic realm="kvcq", charset="UTF-8"'},
            )
        body, content_type = await metrics()
        return web.Response(body=body, headers={"Content-Type": content_type})

    app = web.Application()
    app.add_routes(
        [web.get("/metrics", scrape), web.get("/livez", livez), web.get("/readyz", readyz)]
    )
    return app


def _credentials(header: str) -> tuple[str, str]:
    """Name and secret of HTTP Basic; both empty if missing or not text."""
    from aiohttp import BasicAuth

    try:
        return BasicAuth.decode(header, encoding="utf-8")[:2]
    except ValueError:
        return "", ""
