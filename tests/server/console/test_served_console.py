"""The console as the server serves it: on a port of its own, while the store is opened as well."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from aiohttp import (
    ClientConnectionError,
    ClientConnectorCertificateError,
    ClientConnectorError,
    ClientSession,
    CookieJar,
)

from server.config import ServerConfig
from server.errors import HttpBindError
from store.errors import InvalidArgumentError
from tests.server.app.test_server import SlowOpener
from tests.support.certificates import Authority
from tests.support.serving import serving

if TYPE_CHECKING:
    from tests.support.serving import Served


def _address(served: Served, path: str = "/", scheme: str = "http") -> str:
    return f"{scheme}://127.0.0.1:{served.server.sites.ports['console']}{path}"


def _refuse(_: Path) -> bytes:
    raise PermissionError


async def test_pages_are_served_and_end_with_the_server(tmp_path: Path) -> None:
    async with serving(tmp_path, console_port=0) as served, ClientSession() as browser:
        address = _address(served)
        async with browser.get(address) as answer:
            assert answer.status == 200
            assert "read-only" in (await answer.text()).lower()
    async with ClientSession() as browser:
        with pytest.raises(ClientConnectorError):
            await browser.get(address)


async def test_without_a_port_there_is_no_console(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        assert "console" not in served.server.sites.ports


async def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    async with serving(tmp_path / "one", console_port=0) as served:
        port = served.server.sites.ports["console"]
        with pytest.raises(HttpBindError) as refused:
            async with serving(tmp_path / "two", console_port=port, damaged=True):
                pass
        assert (refused.value.name, refused.value.port) == ("console", port)


async def test_while_the_store_is_opened_pages_say_how_far_that_is(tmp_path: Path) -> None:
    opener = SlowOpener()
    async with (
        serving(tmp_path, opener=opener, wait_ready=False, console_port=0) as served,
        ClientSession() as browser,
    ):
        async with browser.get(_address(served, "/topics")) as answer:
            text = await answer.text()
            assert answer.status == 503
            assert "The store is being opened" in text
            assert '<meta http-equiv="refresh"' in text
            assert "<progress" in text
        async with browser.get(_address(served)) as answer:
            assert answer.status == 200
            assert "not ready" in await answer.text()
        opener.go_on.set()
        await served.until_ready()


async def test_whoever_reaches_it_may_administer_if_the_settings_say_so(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, console_port=0, console_admin=True) as served,
        ClientSession(cookie_jar=CookieJar(unsafe=True)) as browser,
    ):
        origin = _address(served, "")
        form = {"name": "made", "queues": ""}
        async with browser.post(
            f"{origin}/topics/create", data=form, headers={"Origin": origin}
        ) as answer:
            assert answer.status == 200
            assert "The topic was created." in await answer.text()


async def test_with_a_certificate_it_speaks_tls_and_reads_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path / "tls")
    cert, key = authority.issue()
    trusting = ssl.create_default_context(cafile=str(authority.ca))
    async with serving(tmp_path / "store", console_port=0, tls_cert=cert, tls_key=key) as served:
        address = _address(served, "/", "https")

        async with ClientSession() as browser, browser.get(address, ssl=trusting) as answer:
            assert answer.status == 200

        async def serial() -> str:
            port = served.server.sites.ports["console"]
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
            try:
                return str(writer.get_extra_info("peercert")["serialNumber"])
            finally:
                writer.close()
                await writer.wait_closed()

        first = await serial()
        assert await serial() == first
        authority.issue()
        second = await serial()
        assert second != first
        key.write_text("no key")  # half done: the former one stays in use
        assert await serial() == second
        authority.issue()
        with monkeypatch.context() as patch:  # its owner is changed after it was written
            patch.setattr(Path, "read_bytes", _refuse)
            assert await serial() == second
        assert await serial() not in (first, second)
        stranger = ssl.create_default_context(cafile=str(Authority(tmp_path / "other").ca))
        async with ClientSession() as browser:
            with pytest.raises(ClientConnectorCertificateError):
                await browser.get(address, ssl=stranger)


async def test_with_a_ca_a_browser_shows_a_certificate_too(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    cert, key = authority.issue()
    context = ssl.create_default_context(cafile=str(authority.ca))
    async with serving(
        tmp_path / "store", console_port=0, tls_cert=cert, tls_key=key, tls_ca=authority.ca
    ) as served:
        address = _address(served, "/", "https")
        async with ClientSession() as browser:
            with pytest.raises(ClientConnectionError):
                await browser.get(address, ssl=context)
            context.load_cert_chain(*authority.issue("ann"))
            async with browser.get(address, ssl=context) as answer:
                assert answer.status == 200


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("console_host", {"console_port": 8088, "console_host": "0.0.0.0"}),
        ("console_host", {"console_host": ""}),
        ("console_port", {"console_port": 70_000}),
    ],
)
def test_settings_that_are_refused(name: str, settings: dict[str, object]) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        ServerConfig(**settings)  # type: ignore[arg-type] # that is what is tried
    assert refused.value.field == name


def test_an_address_for_all_is_no_matter_without_a_port() -> None:
    assert ServerConfig(console_host="0.0.0.0").console_port is None
