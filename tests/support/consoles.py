"""The console of a served store on a port of its own, and a browser's way to ask it."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from html import unescape
from typing import TYPE_CHECKING, NamedTuple

from aiohttp import ClientSession, CookieJar
from aiohttp.test_utils import BaseTestServer, TestServer

from server.console import PAGES, Viewers, console
from tests.support.fake_clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from server.console import Page
    from tests.support.serving import Served


class Answer(NamedTuple):
    """What a browser would have got."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def html(self) -> str:
        return self.body.decode()

    @property
    def text(self) -> str:
        """What a reader sees: without tags, blanks run together."""
        return " ".join(unescape(re.sub(r"<[^>]*>", " ", self.html)).split())

    @property
    def links(self) -> list[str]:
        return [unescape(one) for one in re.findall(r'href="([^"]*)"', self.html)]

    def link(self, text: str) -> str:
        """Where the link with that text leads."""
        found = re.search(rf'href="([^"]*)"[^>]*>\s*{re.escape(text)}\s*<', self.html)
        assert found is not None, f"no link {text!r}"
        return unescape(found[1])


class ConsoleClient:
    """Asks as a browser does that shows a page of the console."""

    def __init__(self, session: ClientSession, server: BaseTestServer, clock: FakeClock) -> None:
        self._session = session
        self.clock = clock
        self.origin = str(server.make_url("")).rstrip("/")

    async def get(self, path: str, **headers: str) -> Answer:
        return await self._ask("GET", path, headers)

    async def post(self, path: str, form: Mapping[str, str], **headers: str) -> Answer:
        """With the headers of a browser, unless others are given; `-` leaves one out."""
        browser = {"Origin": self.origin, "Sec-Fetch-Site": "same-origin"}
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {name: value for name, value in {**browser, **given}.items() if value != "-"}
        return await self._ask("POST", path, sent, form)

    async def _ask(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        form: Mapping[str, str] | None = None,
    ) -> Answer:
        async with self._session.request(
            method,
            self.origin + path,
            headers={name.replace("_", "-"): value for name, value in headers.items()},
            data=form,
            allow_redirects=False,
        ) as answer:
            return Answer(answer.status, answer.headers, await answer.read())

    async def follow(self, answer: Answer) -> Answer:
        """The page that the answer sends the browser to."""
        assert answer.status == 303, (answer.status, answer.text)
        return await self.get(answer.headers["Location"])


@asynccontextmanager
async def console_of(
    served: Served,
    viewers: Viewers | None = None,
    *,
    may_administer: bool = False,
    pages: Iterable[Page] = PAGES,
    names: Iterable[str] = (),
) -> AsyncIterator[ConsoleClient]:
    """The console of the server until the end of the block, and a browser without cookies."""
    clock = FakeClock()
    viewers = viewers or Viewers(may_administer=may_administer)
    server = served.server
    app = console(
        server._edge,
        server._stage,
        server._metrics,
        server._admin.numbers,
        viewers,
        "1.2.3",
        names=frozenset(names),
        pages=pages,
        now_ms=clock.now_ms,
        monotonic_s=clock.monotonic_s,
    )
    async with (
        TestServer(app) as site,
        ClientSession(cookie_jar=CookieJar(unsafe=True)) as session,
    ):
        yield ConsoleClient(session, site, clock)
