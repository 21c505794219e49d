"""server/http/door.py: connections that ask for nothing, by halves, or too many."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import aiohttp
import pytest
from aiohttp import web

from server.http import HttpSites, Site, door
from tests.support.until import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CLOSE = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
FORM = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n"


@asynccontextmanager
async def _site() -> AsyncIterator[int]:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=str(dict(await request.post())))

    app = web.Application()
    app.router.add_route("*", "/", answer)
    sites = HttpSites()
    sites.add(Site("one", "127.0.0.1", 0, app))
    await sites.start()
    try:
        yield sites.ports["one"]
    finally:
        await sites.stop()


async def _answer(port: int, sent: bytes) -> bytes:
    """What comes until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    try:
        async with asyncio.timeout(LIMIT_S):
            return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(GET[:20], id="half of the headers"),
        pytest.param(FORM + b"Content-Length: 100\r\n\r\nname=a", id="half of a body"),
        pytest.param(FORM + b"Transfer-Encoding: chunked\r\n\r\n5\r\nname=", id="half of a chunk"),
    ],
)
async def test_what_does_not_come_in_time_is_not_waited_for(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "FIRST_REQUEST_S", 0.2)
    monkeypatch.setattr(door, "BODY_S", 0.2)
    async with _site() as port:
        answer = await _answer(port, sent)
        assert not answer or answer.startswith(b"HTTP/1.1 408"), answer


async def test_a_connection_that_has_asked_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "FIRST_REQUEST_S", 1.0)
    async with _site() as port, aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{port}/"
        async with session.post(url, data={"a": "b"}) as answer:
            assert await answer.text() == "{'a': 'b'}"
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(2):
            writer.write(GET)
            assert (await reader.readuntil(b"{}")).startswith(b"HTTP/1.1 200")
            await asyncio.sleep(0.6)
        writer.close()
        await writer.wait_closed()


async def test_connections_are_bounded_and_places_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(door, "MOST_CONNECTIONS", 3)
    async with _site() as port:
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        for reader, writer in opened:
            writer.write(GET)
            await reader.readuntil(b"{}")
        assert await _answer(port, GET) == b"", "one too many is closed"
        for _, writer in opened:
            writer.close()
            await writer.wait_closed()
        assert (await _answer(port, CLOSE)).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (FORM.replace(b"x-www-form-urlencoded", b"json") + b"Content-Length: 2\r\n\r\n{}", b"415"),
        (FORM + b"Transfer-Encoding: chunked\r\n\r\nno chunk\r\n\r\n", b"400"),
    ],
)
async def test_a_body_that_is_no_form_is_refused(sent: bytes, status: bytes) -> None:
    async with _site() as port:
        answer = await _answer(port, sent.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
        assert answer.startswith((b"HTTP/1.0 " + status, b"HTTP/1.1 " + status)), answer


async def test_bad_requests_are_a_line_a_second_without_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bad = b"GET / HTTP/1.1\r\nHost: x\r\nLong: " + b"x" * 20_000 + b"\r\n\r\n"
    async with _site() as port:
        for _ in range(30):
            assert (await _answer(port, bad)).startswith(b"HTTP/1.0 400")
    lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert 1 <= len(lines) <= 3
    assert not any(record.exc_info for record in lines)
