"""The checks that every request passes before it reaches a page.

| what is rejected                              | because                                          |
|-----------------------------------------------|--------------------------------------------------|
| a Host that is not an address of this server  | a foreign name may resolve here (DNS rebinding)  |
| a POST that is not from a page of this origin | a form or script of another site                 |
| a request without a session, with users on    | except for signing in, and the pages' files      |
| a POST of a user who is not an administrator  | the console is read-only for all others          |

Responses have headers that prevent other origins from framing, reading or scripting them, see
SECURITY_HEADERS.
"""

from __future__ import annotations

import ipaddress
import logging
import uuid
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import grpc
from aiohttp import web

from server.console.addresses import address
from server.console.preferences import LANGUAGE_COOKIE
from server.console.visit import Visit
from server.console.words import language_of, words_in
from server.edge import tell

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from server.console.backend import Backend
    from server.console.sessions import Sessions
    from server.console.viewers import Viewer

logger = logging.getLogger(__name__)

SESSION_COOKIE = "kvcq_session"
VISIT: web.RequestKey[Visit] = web.RequestKey("visit", Visit)

SECURITY_HEADERS = {
    # No script, style or frame but from files of ours; nothing of it is in a page itself.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

#: HTTP status of each of the API's codes.
_STATUS = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.OUT_OF_RANGE: 400,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.FAILED_PRECONDITION: 409,
    grpc.StatusCode.ABORTED: 409,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 503,
    grpc.StatusCode.UNAVAILABLE: 503,
}
_OTHERWISE = 500
_OPEN_PATHS = ("/sign-in", "/preferences")


class Guard:
    """The middleware. Owned by the event loop's thread."""

    def __init__(self, backend: Backend, sessions: Sessions, names: Collection[str]) -> None:
        """`names`: host names of the server, in addition to its addresses."""
        self._backend = backend
        self._sessions = sessions
        self._names = frozenset(name.lower() for name in names)

    async def handle(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        """The handler's response, or a page that explains why there is none."""
        language = language_of(
            request.cookies.get(LANGUAGE_COOKIE), request.headers.get("Accept-Language", "")
        )
        visit = Visit(request, self._backend, words_in(language))
        request[VISIT] = visit
        try:
            self._check_host(request)
            if request.method not in ("GET", "HEAD"):
                _check_origin(request)
            visit.found_viewer = self._viewer_of(request)
            if visit.found_viewer is None and not _is_open(request.path):
                if request.method != "GET" or request.path == "/live":
                    raise web.HTTPUnauthorized
                sign_in = address("/sign-in", next=request.path_qs)
                if "HX-Request" in request.headers:  # a part of a page: all of it has to go
                    return web.Response(status=401, headers={"HX-Redirect": sign_in})
                raise web.HTTPSeeOther(sign_in)
            return await handler(request)
        except web.HTTPException as answer:
            if answer.status < 400:
                raise
            return self._refused(visit, answer.status, answer.text or answer.reason, "")
        except Exception as error:  # noqa: BLE001 - the edge: everything becomes a status
            refusal = tell(self._backend.metrics, "Console", error, uuid.uuid4().hex)
            status = _STATUS.get(refusal.code, _OTHERWISE)
            return self._refused(visit, status, refusal.message, refusal.reason)

    def _viewer_of(self, request: web.Request) -> Viewer | None:
        viewers = self._backend.viewers
        if not viewers.sign_in_needed:
            return viewers.anybody
        token = request.cookies.get(SESSION_COOKIE, "")
        viewer = self._sessions.viewer(token) if token else None
        if viewer is None:
            return None
        now = viewers.as_now(viewer)
        if now is None:
            self._sessions.end(token)
        return now

    def _check_host(self, request: web.Request) -> None:
        name = host_name(request.host)
        if name is None or not (name in self._names or _is_address(name)):
            raise web.HTTPMisdirectedRequest(
                text=f"unknown host name {request.host[:100]!r}: add it to server.console_names"
            )

    def _refused(self, visit: Visit, status: int, why: str, reason: str) -> web.Response:
        if visit.request.path == "/live":
            return web.json_response({"error": why, "reason": reason}, status=status)
        stage = self._backend.stage
        is_opening = reason == "STARTING"
        return visit.html(
            "refused.html",
            status,
            why=why,
            reason=reason,
            status=status,
            progress=stage.progress[1] if is_opening else None,
        )


def _is_open(path: str) -> bool:
    """Whether it is visible without signing in."""
    return path in _OPEN_PATHS or path.startswith("/static/")


def host_name(host: str) -> str | None:
    """The name or address of a Host header, without its port; None if it is invalid."""
    if host.startswith("["):
        name, bracket, _ = host[1:].partition("]")
        return name if bracket else None
    return host.partition(":")[0].lower() or None


def _is_address(name: str) -> bool:
    """Whether it is an address, which cannot resolve elsewhere as a name can."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name == "localhost"
    return True


def _check_origin(request: web.Request) -> None:
    """Raises HTTPForbidden unless a page of this console sent the request.

    Browsers send the origin of every POST. A request without one is not from a browser; programs
    should use the API.
    """
    origin = request.headers.get("Origin")
    site = request.headers.get("Sec-Fetch-Site", "same-origin")
    # Without the scheme: a proxy may have ended the TLS that the browser speaks.
    try:
        is_ours = urlsplit(origin or "").netloc == request.host
    except ValueError:  # it is no URL
        is_ours = False
    if not is_ours or site != "same-origin":
        raise web.HTTPForbidden(text="the request was not sent by a page of this console")
