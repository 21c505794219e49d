"""kvcq_client/transport/proxies.py: a web proxy in the environment does not come between."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kvcq_client import AsyncClient, Client, DeadlineError, Message, UnavailableError
from kvcq_client.transport.proxies import is_direct

if TYPE_CHECKING:
    from tests.support.serving import Served

_NOWHERE = "http://127.0.0.1:9"
_PROXIES = ("http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY", "HTTPS_PROXY")


@pytest.fixture
def proxied(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A proxy that nobody can reach, and no exceptions."""
    for name in _PROXIES:
        monkeypatch.setenv(name, _NOWHERE)
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.usefixtures("proxied")
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "ipv4:127.0.0.1", "dns:///localhost"])
async def test_a_server_on_this_machine_is_reached_without_it(served: Served, host: str) -> None:
    target = f"{host}:{served.target.rpartition(':')[2]}"
    async with AsyncClient(target, timeout_s=5) as client:
        await client.put(Message("orders", b"x"))

    def blocking() -> None:
        with Client(target, timeout_s=5) as client:
            client.put(Message("orders", b"x"))

    await asyncio.to_thread(blocking)


async def test_a_channel_argument_of_the_caller_decides(
    served: Served, proxied: pytest.MonkeyPatch
) -> None:
    options = [("grpc.enable_http_proxy", 1)]
    async with AsyncClient(served.target, options=options, timeout_s=0.5) as client:
        with pytest.raises((UnavailableError, DeadlineError)):
            await client.ping()
    proxied.setenv("no_proxy", "127.0.0.1")  # gRPC's own
    async with AsyncClient(served.target, options=options, timeout_s=5) as client:
        await client.ping()


@pytest.mark.parametrize(
    ("target", "no_proxy", "direct"),
    [
        ("127.9.0.1:1", "", True),
        ("[::1]:8081", "", True),
        ("ipv6:[::1]:8081", "", True),
        ("LOCALHOST:8081", "", True),
        ("box.localhost:8081", "", True),
        ("localhost.example:8081", "", False),
        ("10.1.2.3:8081", "", False),
        ("10.1.2.3:8081", "10.0.0.0/8", True),
        ("10.1.2.3:8081", "192.168.0.0/16, 10.1.2.3", True),
        ("11.1.2.3:8081", "10.0.0.0/8", False),
        ("kvcq.corp:8081", ".corp", True),
        ("kvcq.corp:8081", "*.corp", True),
        ("kvcq.corp:8081", "corp", True),
        ("kvcq.corp:8081", "cq.corp", False),
        ("kvcq.corp.:8081", "KVCQ.CORP", True),
        ("kvcq.corp:8081", "other, kvcq.corp", True),
        ("kvcq.corp:8081", "*", True),
        ("kvcq.corp:8081", ",", False),
        ("[2001:db8::1]:8081", "2001:db8::/32", True),
        ("dns:///kvcq.corp:8081", "corp", True),
        ("unix:/run/kvcq.sock", "*", False),
    ],
)
def test_which_targets_are_direct(target: str, no_proxy: str, direct: bool) -> None:
    assert is_direct(target, {"NO_PROXY": no_proxy}) is direct


def test_small_letters_come_first() -> None:
    assert not is_direct("kvcq.corp:1", {"NO_PROXY": "*", "no_proxy": "other"})
    assert not is_direct("kvcq.corp:1", {"NO_PROXY": "*", "no_grpc_proxy": "other"})
