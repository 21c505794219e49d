"""server/http/sites.py: applications that start and stop with the server."""

from __future__ import annotations

import aiohttp
import pytest
from aiohttp import web

from server.errors import HttpBindError
from server.http import HttpSites, Site


def _app(text: str) -> web.Application:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=text)

    app = web.Application()
    app.router.add_get("/", answer)
    return app


async def _text(port: int) -> str:
    url = f"http://127.0.0.1:{port}/"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return await answer.text()


async def test_each_application_has_an_address_of_its_own() -> None:
    sites = HttpSites()
    for name in ("one", "two"):
        sites.add(Site(name, "127.0.0.1", 0, _app(name)))
    await sites.start()
    try:
        assert [await _text(sites.ports[name]) for name in ("one", "two")] == ["one", "two"]
    finally:
        await sites.stop()
    with pytest.raises(aiohttp.ClientConnectorError):
        await _text(sites.ports["one"])
    await sites.stop()


async def test_a_port_that_is_taken_is_refused_by_the_name_of_its_setting() -> None:
    first, second = HttpSites(), HttpSites()
    first.add(Site("one", "127.0.0.1", 0, _app("one")))
    await first.start()
    second.add(Site("other", "127.0.0.1", 0, _app("other")))
    second.add(Site("two", "127.0.0.1", first.ports["one"], _app("two")))
    try:
        with pytest.raises(HttpBindError, match="in use") as refused:
            await second.start()
        assert refused.value.name == "two"
        await second.stop()
        with pytest.raises(aiohttp.ClientConnectorError):
            await _text(second.ports["other"])
        assert await _text(first.ports["one"]) == "one"
    finally:
        await first.stop()


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
async def test_an_address_of_another_machine_is_refused(host: str) -> None:
    sites = HttpSites()
    sites.add(Site("one", host, 0, _app("one")))
    with pytest.raises(HttpBindError, match="cannot listen on"):
        await sites.start()
    await sites.stop()


async def test_without_sites_nothing_happens() -> None:
    sites = HttpSites()
    await sites.start()
    assert sites.ports == {}
    await sites.stop()
