"""What machines ask: /metrics, /livez and /readyz.

The two probes say what grpc.health.v1 says of "" and of "kvcq.ready".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp import web

    from server.stage import Stage

_NOT_SERVING = 503


def monitoring_app(
    stage: Stage, metrics: Callable[[], Awaitable[tuple[bytes, str]]]
) -> web.Application:
    """`metrics` gives the text for Prometheus, and its content type.

    A probe answers 200 and `ok`, or 503 and a line that says why not.
    """
    from aiohttp import web  # see __init__.py

    def answer(why_not: str | None) -> web.Response:
        status, text = (200, "ok") if why_not is None else (_NOT_SERVING, why_not)
        return web.Response(status=status, text=f"{text}\n", headers={"Cache-Control": "no-store"})

    async def livez(_: web.Request) -> web.Response:
        return answer("the server ends" if stage.is_draining else None)

    async def readyz(_: web.Request) -> web.Response:
        return answer(stage.why_not_ready)

    async def scrape(_: web.Request) -> web.Response:
        text, content_type = await metrics()
        return web.Response(body=text, headers={"Content-Type": content_type})

    app = web.Application()
    app.add_routes(
        [web.get("/metrics", scrape), web.get("/livez", livez), web.get("/readyz", readyz)]
    )
    return app
