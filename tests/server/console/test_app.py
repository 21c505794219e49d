"""Signing in and out, preferences, static files, and a page of somebody's own."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from aiohttp import web

from server.access.attempts import FAILURE_WAIT_S, MAX_FAILURES
from server.console import PAGES, Page, Viewer, Viewers
from server.console.addresses import local
from server.console.sessions import IDLE_S
from server.console.writing import static_files
from tests.support.consoles import console_of

if TYPE_CHECKING:
    from server.console.visit import Visit
    from tests.support.consoles import Answer, ConsoleClient
    from tests.support.serving import Served

SECRETS = {"ann": "s3cret", "bob": "pa55"}


class Users(Viewers):
    """Ann may administer, Bob may look."""

    sign_in_needed = True

    def __init__(self) -> None:
        super().__init__(may_administer=False)
        self.gone: set[str] = set()

    async def signed_in(self, access_key: str, secret: str) -> Viewer | None:
        if SECRETS.get(access_key) != secret:
            return None
        return Viewer(access_key, may_administer=access_key == "ann")

    def authenticate(self, viewer: Viewer) -> None:
        assert viewer.name in SECRETS

    def as_now(self, viewer: Viewer) -> Viewer | None:
        return None if viewer.name in self.gone else viewer


async def _sign_in(client: ConsoleClient, name: str, secret: str, path: str = "/sign-in") -> Answer:
    return await client.post(path, {"access_key": name, "secret": secret})


@pytest.mark.parametrize("path", [page.path for page in PAGES])
async def test_strangers_are_sent_to_sign_in(served: Served, path: str) -> None:
    async with console_of(served, Users()) as client:
        answer = await client.get(f"{path}?prefix=a%26b")
        assert answer.status == 303
        location = answer.headers["Location"]
        assert location.startswith("/sign-in?")
        assert parse_qs(urlsplit(location).query)["next"] == [f"{path}?prefix=a%26b"]
        assert (await client.get("/live")).status == 401
        part = await client.get("/topics?prefix=x", HX_Request="true")
        assert part.status == 401
        assert part.headers["HX-Redirect"] == "/sign-in?next=%2Ftopics%3Fprefix%3Dx"
        assert part.body == b""
        page = await client.follow(answer)
        assert "Access key" in page.text
        assert "Topics" not in page.text


@pytest.mark.parametrize("page", PAGES)
async def test_strangers_change_nothing(served: Served, page: Page) -> None:
    async with console_of(served, Users()) as client:
        for path in page.does:
            assert (await client.post(path, {})).status == 401


async def test_a_user_signs_in_looks_and_signs_out(served: Served) -> None:
    async with console_of(served, Users()) as client:
        answer = await _sign_in(client, "bob", "pa55", "/sign-in?next=%2Ftopics%3Fprefix%3Dx")
        assert answer.headers["Location"] == "/topics?prefix=x"
        cookie = answer.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        page = await client.follow(answer)
        assert page.status == 200
        assert "bob" in page.text
        assert "Read-only" in page.text
        assert (await client.post("/topics/create", {"name": "x"})).status == 403
        answer = await client.post("/sign-out", {})
        assert answer.headers["Location"] == "/sign-in"
        assert (await client.get("/topics")).status == 303


async def test_a_token_that_was_signed_out_is_worth_nothing(served: Served) -> None:
    async with console_of(served, Users()) as client:
        cookie = (await _sign_in(client, "bob", "pa55")).headers["Set-Cookie"].partition(";")[0]
        await client.post("/sign-out", {})
        assert (await client.get("/topics", Cookie=cookie)).status == 303


async def test_an_administrator_may_change_things(served: Served) -> None:
    async with console_of(served, Users()) as client:
        await _sign_in(client, "ann", "s3cret")
        answer = await client.post("/topics/create", {"name": "made", "queues": "3"})
        page = await client.follow(answer)
        assert "The topic was created." in page.text
        assert "3 queues" in page.text


async def test_where_nobody_signs_in_the_page_says_what_changes_take(served: Served) -> None:
    async with console_of(served) as client:
        assert "console_admin" in (await client.get("/")).text
    async with console_of(served, may_administer=True) as client:
        assert "Read-only" not in (await client.get("/")).text


async def test_wrong_credentials_are_refused_without_saying_which(served: Served) -> None:
    for name, secret in [("bob", "Pa55"), ("nobody", "pa55"), ("", ""), ("bob", "")]:
        async with console_of(served, Users()) as client:
            answer = await _sign_in(client, name, secret)
            assert answer.status == 403
            assert "Wrong access key or secret." in answer.text
            assert "Set-Cookie" not in answer.headers
            if secret:
                assert secret not in answer.html
            assert (await client.get("/")).status == 303


async def test_guessing_is_slowed_down(served: Served) -> None:
    async with console_of(served, Users()) as client:
        for _ in range(MAX_FAILURES):
            assert (await _sign_in(client, "bob", "wrong")).status == 403
        answer = await _sign_in(client, "bob", "pa55")
        assert answer.status == 429
        assert f"Try again in {FAILURE_WAIT_S:.0f} s" in answer.text
        answer = await _sign_in(client, "ann", "s3cret")
        assert answer.status == 303, "others behind the same proxy are not held up"
        client.clock.advance(FAILURE_WAIT_S)
        assert (await _sign_in(client, "bob", "pa55")).status == 303


async def test_a_session_ends_by_itself(served: Served) -> None:
    async with console_of(served, Users()) as client:
        await _sign_in(client, "bob", "pa55")
        client.clock.advance(IDLE_S + 1)
        assert (await client.get("/topics")).status == 303


async def test_a_user_that_is_removed_is_out_at_once(served: Served) -> None:
    users = Users()
    async with console_of(served, users) as client:
        await _sign_in(client, "bob", "pa55")
        assert (await client.get("/topics")).status == 200
        users.gone.add("bob")
        assert (await client.get("/topics")).status == 303
        users.gone.clear()
        assert (await client.get("/topics")).status == 303  # the session had ended


async def test_nobody_is_sent_elsewhere(served: Served) -> None:
    for path in [
        "https://evil.example/",
        "//evil.example",
        "/\\evil.example",
        "\\\\evil",
        "javascript:x",
        "",
    ]:
        assert local(path) == "/"
        async with console_of(served, Users()) as client:
            answer = await client.post("/preferences", {"back": path})
            assert answer.headers["Location"] == "/"
            answer = await _sign_in(client, "bob", "pa55", f"/sign-in?next={quote(path, safe='')}")
            assert answer.headers["Location"] == "/"


async def test_language_and_theme_are_kept(console: ConsoleClient) -> None:
    page = await console.get("/topics", Accept_Language="en")
    assert '<html lang="en" data-theme="auto">' in page.html
    answer = await console.post("/preferences", {"language": "zh", "back": "/topics?prefix=a"})
    assert answer.headers["Location"] == "/topics?prefix=a"
    await console.post("/preferences", {"theme": "dark", "back": "/"})
    page = await console.get("/topics", Accept_Language="en")
    assert '<html lang="zh" data-theme="dark">' in page.html
    assert "主题" in page.text
    answer = await console.post("/preferences", {"theme": "<script>", "language": "xx"})
    assert "Set-Cookie" not in answer.headers


async def test_the_browsers_language_is_the_first_one(console: ConsoleClient) -> None:
    assert 'lang="zh"' in (await console.get("/", Accept_Language="zh-CN,en;q=0.5")).html


async def test_static_files_are_kept_by_the_browser(console: ConsoleClient) -> None:
    page = await console.get("/")
    links = [link for link in page.links if link.startswith("/static/")]
    assert links
    for link in links:
        answer = await console.get(link)
        assert answer.status == 200
        assert "immutable" in answer.headers["Cache-Control"]
    assert (await console.get("/static/console.css")).headers["Cache-Control"] == "no-cache"
    assert page.headers["Cache-Control"] == "no-store"


async def test_the_licences_of_others_are_shipped() -> None:
    files = static_files()
    assert {"htmx.LICENSE.txt", "uPlot.LICENSE.txt", "VERSIONS.md"} <= set(files)


async def test_no_path_leads_out_of_the_console(console: ConsoleClient) -> None:
    for path in [
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e/app.py",
        "/static/..%5capp.py",
        "/static//etc/passwd",
        "/static/%2fetc%2fpasswd",
        "/static/console.css%00.html",
        "/static/",
        "/static/words/en.toml",
        "/templates/base.html",
        "/..%2f..%2fetc/passwd",
        "//evil.example/",
    ]:
        answer = await console.get(path)
        assert answer.status == 404
        assert "import" not in answer.text
        assert "root:" not in answer.text


async def test_a_page_of_ones_own_joins_by_a_row(served: Served) -> None:
    async def show(visit: Visit) -> web.StreamResponse:
        return web.Response(text=f"mine for {visit.viewer.may_administer}")

    own = Page("topics", "/own", {"/own": show})
    timers = Page("jobs", "/timers", {"/timers": show}, needs=("ListTimers",))
    async with console_of(served, pages=(*PAGES, own, timers)) as client:
        page = await client.get("/")
        assert "/own" in page.links
        assert "/timers" not in page.links  # no such method in this server
        assert (await client.get("/own")).body == b"mine for False"
