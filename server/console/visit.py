"""One request to the console: viewer, language, and helpers for the response."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from aiohttp import web
from google.protobuf.message import Message

from server.console.preferences import theme_of
from server.console.writing import page
from server.errors import ForbiddenError
from server.moments import moment_ms
from server.texts import whole_number
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from server.console.backend import Backend
    from server.console.navigation import Row
    from server.console.viewers import Viewer
    from server.console.words import Words

M = TypeVar("M", bound=Message)

#: Rows of a page.
PAGE_ROWS = 50
INT64_MAX = (1 << 63) - 1
INT32_MAX = (1 << 31) - 1


class Visit:
    """Created by the guard for each request that it accepts."""

    def __init__(self, request: web.Request, backend: Backend, words: Words) -> None:
        self.request = request
        self.backend = backend
        self.words = words
        #: None until a user has signed in; then only the sign-in page is shown.
        self.found_viewer: Viewer | None = None

    @property
    def viewer(self) -> Viewer:
        """The viewer. Raises HTTPUnauthorized if no user has signed in."""
        if self.found_viewer is None:
            raise web.HTTPUnauthorized
        return self.found_viewer

    async def ask(self, method: str, request: Message, answer: type[M]) -> M:
        """Call an API method. Raises the error with which it is rejected."""
        return await self.backend.calls.ask(self.viewer, method, request, answer)

    async def ask_if_allowed(
        self, method: str, request: Message, answer: type[M]
    ) -> tuple[M, str, int]:
        """The response, "" and 200; for a viewer without the right, an empty response, the reason
        and 403, so that a list can be narrowed."""
        try:
            return await self.ask(method, request, answer), "", 200
        except ForbiddenError as error:
            return answer(), str(error), 403

    # --- what the address says -------------------------------------------------------------

    def text(self, name: str) -> str:
        """A field of the query; empty if missing. Raises InvalidArgumentError."""
        value = self.request.query.get(name, "").strip()
        if not value.isprintable():
            raise InvalidArgumentError(name, "contains unprintable characters")
        return value

    def token(self, name: str) -> str:
        """Like `text`, but not stripped: a token from an earlier page."""
        return self.request.query.get(name, "")

    def whole(self, name: str, otherwise: int = 0, *, most: int = INT64_MAX) -> int:
        """A number from 0 to `most`. Raises InvalidArgumentError."""
        text = self.text(name)
        return whole_of(name, text, most) if text else otherwise

    def moment(self, name: str) -> int:
        """A time in ms since 1970; 0 if missing. Raises InvalidArgumentError."""
        text = self.text(name)
        if not text:
            return 0
        found = moment_ms(text, self.backend.now_ms())
        if found is None or not 0 <= found <= INT64_MAX:
            raise InvalidArgumentError(
                name, f"{text[:40]!r} is not a time such as 2026-01-31T12:00, -90m or now"
            )
        return found

    # --- how it is answered ----------------------------------------------------------------

    def html(self, template: str, http_status: int = 200, /, **values: object) -> web.Response:
        """A page from its template and values."""
        text = self._text(template, values)
        return web.Response(status=http_status, text=text, content_type="text/html")

    async def long_html(self, template: str, /, **values: object) -> web.Response:
        """Like `html`, for a page of perhaps thousands of rows: rendered outside the event loop."""
        text = await self.backend.workers.run(self._text, template, values)
        return web.Response(text=text, content_type="text/html")

    def _text(self, template: str, values: Mapping[str, object]) -> str:
        notice = self.request.query.get("notice", "")
        return page(
            template,
            self.words,
            viewer=self.found_viewer,
            here=self.request.path_qs,
            path=self.request.path,
            theme=theme_of(self.request.cookies),
            navigation=self._navigation(),
            notice=notice if self.words.has(f"notice.{notice}") else "",
            version=self.backend.version,
            is_open_to_all=not self.backend.viewers.sign_in_needed,
            **values,
        )

    def _navigation(self) -> list[Row]:
        viewer, backend = self.found_viewer, self.backend
        if viewer is None:
            return []
        sees_all = viewer.may_administer or not backend.viewers.sign_in_needed
        return [
            row
            for row in backend.navigation
            if all(map(backend.calls.offers, row.needs))
            and (sees_all or not row.for_administrators)
        ]


def whole_of(name: str, text: str, most: int) -> int:
    """A number from 0 to `most` in a field of that name. Raises InvalidArgumentError."""
    number = whole_number(text, most)
    if number is None:
        raise InvalidArgumentError(name, f"{text[:40]!r} is not a whole number from 0 to {most}")
    return number
