"""The console of a server with users: each sees and does what their rights allow."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from kvcq_client import Queue
from server.access import Limits
from server.console import PAGES, UserViewers
from store.message import Message
from tests.support.consoles import console_of
from tests.support.users import ADMIN, client_of, guarded, secret_of, users_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.consoles import ConsoleClient
    from tests.support.serving import Served

RIGHTS = {"app": ["subscribe topic app*", "subscribe group app*"], "none": []}


@asynccontextmanager
async def _signed_in(served: Served, name: str, secret: str) -> AsyncIterator[ConsoleClient]:
    gatekeeper = served.server._gatekeeper
    assert gatekeeper is not None
    async with console_of(served, UserViewers(gatekeeper)) as client:
        answer = await client.post("/sign-in", {"access_key": name, "secret": secret})
        assert answer.status == 303
        yield client


async def _fill(served: Served) -> dict[str, str]:
    """Two topics with a message each; the ids of these by topic."""
    ids = {}
    async with client_of(served, ADMIN.access_key, ADMIN.secret) as ops:
        for topic in ("app-orders", "secret"):
            await ops.create_topics({topic: 2})
            served.store.put([Message(topic, f"in {topic}".encode(), keys=("k",))])
            served.store.wait_visible()
            [stored] = (await ops.pull(topic, 0, 0)).messages
            ids[topic] = stored.message_id
        for group in ("app-1", "other"):
            await ops.commit_offsets(group, {Queue("app-orders", 0): 0})
    return ids


async def test_an_administrator_sees_all_and_may_change_it(tmp_path: Path) -> None:
    async with guarded(tmp_path, RIGHTS) as served:
        ids = await _fill(served)
        async with _signed_in(served, ADMIN.access_key, ADMIN.secret) as client:
            for page in PAGES:
                answer = await client.get(page.path)
                assert answer.status == 200, page.path
                assert {page.path for page in PAGES} <= set(answer.links)
            assert "in secret" in (await client.get(f"/message?id={ids['secret']}")).text
            answer = await client.post("/topics/create", {"name": "made"})
            assert "The topic was created." in (await client.follow(answer)).text


async def test_a_user_sees_what_the_rights_are_for(tmp_path: Path) -> None:
    async with guarded(tmp_path, RIGHTS) as served:
        ids = await _fill(served)
        async with _signed_in(served, "app", secret_of("app")) as client:
            overview = await client.get("/")
            assert overview.status == 200
            assert "Read-only" in overview.text
            assert not {"/jobs", "/migration", "/transactions"} & set(overview.links)
            seen = {
                "/topics?prefix=app": "app-orders 2 1",
                "/topic?name=app-orders": "2 queues",
                "/messages?topic=app-orders&queue=0": "in app-orders",
                "/messages?topic=app-orders&by=key&key=k": "in app-orders",
                f"/message?id={ids['app-orders']}": "in app-orders",
                "/group?name=app-1": "app-orders 0 0 0 1 1",
                "/delayed?topic=app-orders": "No message waits.",
                "/lite-topics?prefix=app": "No topic has lite topics",
                "/live": "time",
            }
            for path, text in seen.items():
                answer = await client.get(path)
                assert answer.status == 200, path
                assert text in answer.text, path
            hidden = (
                *("/topics", "/topics?prefix=secret", "/topic?name=secret", "/light-queues"),
                *("/messages?topic=secret&queue=0", "/messages?topic=secret&by=key&key=k"),
                *(f"/message?id={ids['secret']}", "/groups", "/group?name=other"),
                *("/jobs", "/job?id=x", "/migration", "/transactions"),
                *("/delayed", "/delayed?topic=secret", "/lite-topics", "/lite-parent?name=secret"),
            )
            for path in hidden:
                answer = await client.get(path)
                assert answer.status == 403, path
                assert "in secret" not in answer.text
                assert "kvcq" in answer.text
            # What can be looked for is still there to be filled in.
            assert 'id="prefix"' in (await client.get("/topics")).html
            assert "enter a prefix" in (await client.get("/light-queues")).text
            assert 'name="topic"' in (await client.get("/delayed")).html
            assert 'name="name"' in (await client.get("/groups")).html
            for page in PAGES:
                for path in page.does:
                    assert (await client.post(path, {"name": "app-orders"})).status == 403, path


async def test_rights_that_are_taken_away_are_gone_at_the_next_request(tmp_path: Path) -> None:
    async with guarded(tmp_path, RIGHTS) as served:
        await _fill(served)
        users = users_of(served)
        async with _signed_in(served, "app", secret_of("app")) as client:
            path = "/messages?topic=app-orders&queue=0"
            assert (await client.get(path)).status == 200
            users.rotate("app", "a-new-secret-of-app")
            assert (await client.get(path)).status == 303


async def test_a_user_without_rights_sees_the_numbers_alone(tmp_path: Path) -> None:
    async with guarded(tmp_path, RIGHTS) as served:
        await _fill(served)
        async with _signed_in(served, "none", secret_of("none")) as client:
            assert (await client.get("/")).status == 200
            for path in ("/topics", "/topics?prefix=a", "/messages?topic=app-orders&queue=0"):
                assert (await client.get(path)).status == 403, path


async def test_the_servers_own_console_asks_who_it_is(tmp_path: Path) -> None:
    from aiohttp import ClientSession

    async with guarded(tmp_path, RIGHTS, console_port=0) as served, ClientSession() as browser:
        origin = f"http://127.0.0.1:{served.server.sites.ports['console']}"
        async with browser.get(f"{origin}/topics", allow_redirects=False) as answer:
            assert answer.status == 303
        async with browser.get(f"{origin}/topics") as answer:
            assert answer.status == 200
            assert "Access key" in await answer.text()


async def test_pages_and_their_calls_are_refused_alike(tmp_path: Path) -> None:
    """A page that is let in asks nothing that the same user is refused over gRPC."""
    async with guarded(tmp_path, RIGHTS) as served:
        await _fill(served)
        async with client_of(served, "app") as app:
            listed = [topic.name async for topic in app.topics("app")]
        async with _signed_in(served, "app", secret_of("app")) as client:
            page = await client.get("/topics?prefix=app")
        assert [link for link in page.links if link.startswith("/topic?")] == [
            f"/topic?name={name}" for name in listed
        ]


async def test_a_users_limits_hold_in_the_console_as_well(tmp_path: Path) -> None:
    async with guarded(tmp_path, RIGHTS) as served:
        await _fill(served)
        async with _signed_in(served, "app", secret_of("app")) as client:
            assert (await client.get("/topics?prefix=app")).status == 200
            users_of(served).set_limits("app", Limits(bytes_per_s=1))
            await client.get("/topics?prefix=app")
            page = await client.get("/topics?prefix=app")
            assert page.status == 503
            assert "1 bytes per s" in page.text
            users_of(served).set_limits("app", Limits(calls=1))
            assert (await client.get("/topics?prefix=app")).status == 200, "places are given back"
