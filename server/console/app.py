"""Puts the console together: an aiohttp application that a site of `server.http` serves."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from time import monotonic, time
from typing import TYPE_CHECKING

from aiohttp import web

from server.access import Attempts
from server.console.addresses import local
from server.console.backend import Backend
from server.console.calls import ApiCalls
from server.console.guard import SECURITY_HEADERS, SESSION_COOKIE, VISIT, Guard
from server.console.page_table import PAGES
from server.console.preferences import CHOICES
from server.console.samples import keep_sampling
from server.console.sessions import Sessions
from server.console.writing import static_files, templates
from server.workers import CALLER, Workers

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Awaitable,
        Callable,
        Collection,
        Iterable,
        Mapping,
    )

    from aiohttp.typedefs import Handler as WebHandler

    from server.console.page import Action, Handler, Page
    from server.console.viewers import Viewers
    from server.console.writing import StaticFile
    from server.edge import Edge
    from server.metrics import CallMetrics
    from server.stage import Stage

#: Far more than the longest names and a secret need.
_MAX_FORM_BYTES = 64 << 10
_YEAR_S = 365 * 86_400


def console(
    edge: Edge,
    stage: Stage,
    metrics: CallMetrics,
    read_numbers: Callable[[], Awaitable[Mapping[str, float]]],
    viewers: Viewers,
    version: str,
    *,
    names: Collection[str] = (),
    pages: Iterable[Page] = PAGES,
    now_ms: Callable[[], int] = lambda: round(time() * 1000),
    monotonic_s: Callable[[], float] = monotonic,
) -> web.Application:
    """Returns the console of one server, to be served by a site of `server.http`.

    `read_numbers` returns the values of GetStatistics, for the charts. `names`: host names under
    which browsers may reach the console, in addition to its addresses.
    """
    pages = tuple(pages)
    backend = Backend(
        calls=ApiCalls(edge.methods, edge.gate, metrics, viewers.authenticate),
        viewers=viewers,
        stage=stage,
        metrics=metrics,
        read_numbers=read_numbers,
        version=version,
        navigation=pages,
        workers=Workers(1, "console"),
        now_ms=now_ms,
        monotonic_s=monotonic_s,
    )
    sessions, attempts = Sessions(backend.monotonic_s), Attempts(backend.monotonic_s)
    files = static_files()
    entry = _Entry(backend, sessions, attempts)
    guard = Guard(backend, sessions, names)

    @web.middleware
    async def guarded(request: web.Request, handler: WebHandler) -> web.StreamResponse:
        return await guard.handle(request, handler)

    async def secure(_: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(SECURITY_HEADERS)
        response.headers.setdefault("Cache-Control", "no-store")
        response.headers["Server"] = "kvcq"

    async def prepare(_: web.Application) -> None:
        await asyncio.to_thread(templates)

    async def sampling(_: web.Application) -> AsyncIterator[None]:
        task = asyncio.create_task(
            keep_sampling(backend.samples, backend.read_numbers, lambda: backend.now_ms() / 1000),
            name="console samples",
        )
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def end_workers(_: web.Application) -> None:
        await asyncio.to_thread(backend.workers.close)

    app = web.Application(middlewares=[guarded], client_max_size=_MAX_FORM_BYTES)
    app.on_response_prepare.append(secure)
    app.on_startup.append(prepare)
    app.cleanup_ctx.append(sampling)
    app.on_cleanup.append(end_workers)
    for page in pages:
        for path, handler in page.shows.items():
            app.router.add_get(path, _shown(handler))
        for path, action in page.does.items():
            app.router.add_post(path, _done(action))
    app.router.add_get("/static/{name}", _static(files))
    app.router.add_get("/sign-in", entry.form)
    app.router.add_post("/sign-in", entry.sign_in)
    app.router.add_post("/sign-out", entry.sign_out)
    app.router.add_post("/preferences", _prefer)
    return app


def _shown(handler: Handler) -> WebHandler:
    async def show(request: web.Request) -> web.StreamResponse:
        return await handler(request[VISIT])

    return show


def _done(action: Action) -> WebHandler:
    async def do(request: web.Request) -> web.StreamResponse:
        visit = request[VISIT]
        if not visit.viewer.may_administer:
            raise web.HTTPForbidden(text="only administrators may change anything here")
        raise web.HTTPSeeOther(await action(visit, await form_of(request)))

    return do


async def form_of(request: web.Request) -> dict[str, str]:
    """Returns the fields of a form; of a repeated field, the last value. Uploaded files are left
    out. Raises HTTPBadRequest if the body is not a form, or ends early."""
    try:
        fields = await request.post()
    except (ValueError, LookupError, ConnectionError) as error:
        raise web.HTTPBadRequest(text="cannot read the form") from error
    return {name: value for name, value in fields.items() if isinstance(value, str)}


def _static(files: Mapping[str, StaticFile]) -> WebHandler:
    async def give(request: web.Request) -> web.StreamResponse:
        file = files.get(request.match_info["name"])
        if file is None:
            raise web.HTTPNotFound
        # The digest in the address changes with the file.
        is_named = request.query.get("v") == file.digest
        caching = f"public, max-age={_YEAR_S}, immutable" if is_named else "no-cache"
        headers = {"Cache-Control": caching, "Content-Type": file.content_type}
        return web.Response(body=file.data, headers=headers)

    return give


async def _prefer(request: web.Request) -> web.StreamResponse:
    """Store language and theme in cookies, for a year. Only values in `CHOICES` are accepted."""
    form = await form_of(request)
    answer = web.HTTPSeeOther(local(form.get("back", "")))
    for field, cookie, allowed in CHOICES:
        value = form.get(field, "")
        if value in allowed:
            answer.set_cookie(
                cookie, value, max_age=_YEAR_S, httponly=True, samesite="Strict", path="/"
            )
    raise answer


class _Entry:
    """Signing in and out. Owned by the event loop's thread."""

    def __init__(self, backend: Backend, sessions: Sessions, attempts: Attempts) -> None:
        self._backend = backend
        self._sessions = sessions
        self._attempts = attempts

    async def form(self, request: web.Request) -> web.StreamResponse:
        return self._page(request, status=200, error="")

    async def sign_in(self, request: web.Request) -> web.StreamResponse:
        address = request.remote or ""
        CALLER.set(f"http:{address}")  # for the audit
        form = await form_of(request)
        name = form.get("access_key", "").strip()
        # Each attempt counts as failed until its outcome is known, and nothing is awaited between
        # this check and the count. So attempts that are made in parallel cannot evade the limit.
        if (wait_s := self._attempts.wait_s(address, name)) > 0:
            return self._page(request, status=429, error="wait", wait_s=wait_s)
        self._attempts.failed(address, name)
        viewer = await self._backend.viewers.signed_in(name, form.get("secret", "").strip())
        if viewer is None:
            return self._page(request, status=403, error="wrong")
        self._attempts.succeeded(address, name)
        self._sessions.end(request.cookies.get(SESSION_COOKIE, ""))
        answer = web.HTTPSeeOther(local(request.query.get("next", "")))
        answer.set_cookie(
            SESSION_COOKIE,
            self._sessions.begin(viewer),
            httponly=True,
            secure=request.secure,
            samesite="Strict",
            path="/",
        )
        raise answer

    async def sign_out(self, request: web.Request) -> web.StreamResponse:
        self._sessions.end(request.cookies.get(SESSION_COOKIE, ""))
        answer = web.HTTPSeeOther("/sign-in" if self._backend.viewers.sign_in_needed else "/")
        answer.del_cookie(SESSION_COOKIE, path="/")
        raise answer

    def _page(
        self, request: web.Request, *, status: int, error: str, wait_s: float = 0
    ) -> web.Response:
        visit = request[VISIT]
        return visit.html(
            "sign_in.html",
            status,
            error=error,
            wait_s=wait_s,
            next=local(request.query.get("next", "")),
        )
