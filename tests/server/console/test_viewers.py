"""server/console/viewers.py: users sign in, and see and do what their rights allow."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING

import pytest
from aiohttp import ClientSession, CookieJar

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.access import AUDIT
from server.console import UserViewers, Viewer
from server.console.calls import ApiCalls
from server.errors import ForbiddenError, UnauthenticatedError
from tests.support.users import ADMIN, guarded, secret_of, users_of

if TYPE_CHECKING:
    from pathlib import Path


async def test_who_signs_in_is_the_caller(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, AUDIT)
    async with guarded(tmp_path / "store", {"app": ["subscribe topic a*"]}) as served:
        server = served.server
        assert server._gatekeeper is not None
        viewers = UserViewers(server._gatekeeper)
        calls = ApiCalls(
            server._edge.methods, server._edge.gate, server._metrics, viewers.authenticate
        )
        assert viewers.sign_in_needed
        for name, secret in (("app", "wrong"), ("nobody", "any"), ("", ""), ("app", "\udc80")):
            assert await viewers.signed_in(name, secret) is None
        refused = [json.loads(record.message) for record in caplog.records if record.name == AUDIT]
        assert [line["message"].partition(":")[0] for line in refused] == [
            "'app'",
            "'nobody'",
            "''",
        ]
        assert 'wrong"' not in caplog.text

        ops = await viewers.signed_in(ADMIN.access_key, ADMIN.secret)
        app = await viewers.signed_in("app", secret_of("app"))
        assert ops is not None
        assert app is not None
        assert (ops.may_administer, app.may_administer) == (True, False)
        assert secret_of("app") not in repr(app)
        wanted = pb.CreateTopicsRequest(topics=[pb.CreateTopicRequest(name="abc", queue_count=1)])

        async def create(viewer: Viewer) -> pb.CreateTopicsResponse:
            return await calls.ask(viewer, "CreateTopics", wanted, pb.CreateTopicsResponse)

        with pytest.raises(ForbiddenError):
            await asyncio.create_task(create(app))
        await asyncio.create_task(create(ops))
        listed = await asyncio.create_task(
            calls.ask(app, "ListTopics", pb.ListTopicsRequest(prefix="a"), pb.ListTopicsResponse)
        )
        assert [topic.name for topic in listed.topics] == ["abc"]

        users = users_of(served)
        assert viewers.as_now(app) == app
        users.rotate("app", "another-secret")
        assert viewers.as_now(app) is None
        users.delete("app")
        with pytest.raises(UnauthenticatedError):
            await asyncio.create_task(create(app))
        assert viewers.as_now(Viewer("ops", may_administer=True)) is None


async def test_the_console_of_such_a_server_asks_who_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, AUDIT)
    async with (
        guarded(tmp_path / "store", {}, console_port=0) as served,
        ClientSession(cookie_jar=CookieJar(unsafe=True)) as session,
    ):
        address = f"http://127.0.0.1:{served.server.sites.ports['console']}"
        async with session.get(f"{address}/topics", allow_redirects=False) as answer:
            assert answer.status in (303, 401)
        form = {"access_key": ADMIN.access_key, "secret": ADMIN.secret}
        headers = {"Origin": address}
        async with session.post(
            f"{address}/sign-in", data={**form, "secret": "wrong"}, headers=headers
        ) as answer:
            assert answer.status == 403
        [refused] = [json.loads(one.message) for one in caplog.records if one.name == AUDIT]
        assert refused["peer"] == "http:127.0.0.1"
        async with session.post(f"{address}/sign-in", data=form, headers=headers) as answer:
            assert answer.status == 200
        async with session.get(f"{address}/topics", allow_redirects=False) as answer:
            assert answer.status == 200
