"""server/http/monitoring.py: the probes say what the health service says; metrics take a user."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from base64 import b64encode
from typing import TYPE_CHECKING

import pytest
from aiohttp import ClientConnectionError, ClientConnectorError, ClientSession
from grpc_health.v1 import health_pb2, health_pb2_grpc

from server.access import AUDIT
from server.access.attempts import MAX_FAILURES
from store.errors import StoreFailedError
from tests.server.app.test_server import SlowOpener
from tests.support.certificates import Authority
from tests.support.http import Samples, get, url_of
from tests.support.serving import serving
from tests.support.users import ADMIN, add_users, guarded, secret_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.serving import Served


def _basic(name: str, secret: str) -> str:
    return "Basic " + b64encode(f"{name}:{secret}".encode()).decode()


async def _said(served: Served) -> tuple[bool, bool]:
    """Whether it lives and is ready, by HTTP; the health service says the same."""
    stub = health_pb2_grpc.HealthStub(served.channel)
    for path, service in (("/livez", ""), ("/readyz", "kvcq.ready")):
        status, _ = await get(served, path)
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=service))
        assert (status == 200) == (answer.status == health_pb2.HealthCheckResponse.SERVING)
    return (await get(served, "/livez"))[0] == 200, (await get(served, "/readyz"))[0] == 200


async def test_alive_at_once_ready_when_the_store_is_open(tmp_path: Path) -> None:
    opener = SlowOpener()
    async with serving(tmp_path, opener=opener, wait_ready=False, metrics_port=0) as served:
        assert await _said(served) == (True, False)
        status, text = await get(served, "/readyz")
        assert (status, text.startswith("the store is being opened:")) == (503, True)
        status, text = await get(served, "/metrics")
        samples = Samples(text)
        assert (status, samples.get("kvcq_ready")) == (200, 0)
        assert samples.get("kvcq_log_appended_offset") is None
        opener.go_on.set()
        await served.until_ready()
        assert await _said(served) == (True, True)
        assert await get(served, "/readyz") == (200, "ok\n")


async def test_a_store_that_failed_is_alive_and_not_ready(tmp_path: Path) -> None:
    async with serving(tmp_path, metrics_port=0, damaged=True) as served:
        assert await _said(served) == (True, True)
        failed = asyncio.Event()
        served.server._stage.on_change(failed.set)
        served.store._appends.fail(StoreFailedError("as if an fsync had failed"))
        await failed.wait()
        assert await _said(served) == (True, False)
        assert "kvcq stats" in (await get(served, "/readyz"))[1]


async def test_a_server_that_drains_is_neither(tmp_path: Path) -> None:
    async with serving(tmp_path, metrics_port=0) as served:
        served.server._stage.drain()
        assert await get(served, "/livez") == (503, "the server is shutting down\n")
        assert await get(served, "/readyz") == (503, "the server is shutting down\n")


async def test_no_port_no_site(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        assert served.server.sites.ports == {}
        assert served.store.config.rocksdb_statistics is False


async def test_with_users_metrics_take_one_and_probes_do_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, AUDIT)
    async with guarded(tmp_path / "store", {"prometheus": []}, metrics_port=0) as served:
        assert [(await get(served, path))[0] for path in ("/livez", "/readyz")] == [200, 200]
        url = url_of(served, "/metrics")
        async with ClientSession() as session:
            for header in (
                None,
                _basic("prometheus", "wrong"),
                _basic("nobody", secret_of("prometheus")),
                _basic("", ""),
                *("Basic", "Basic %%%", "Basic gA==", "Bearer abc", "Basic " + "A" * 4000),
            ):
                headers = {} if header is None else {"Authorization": header}
                async with session.get(url, headers=headers) as answer:
                    assert answer.status == 401, header
                    assert answer.headers["WWW-Authenticate"].startswith("Basic ")
                    assert "kvcq_ready" not in await answer.text()
            for wrong, status in ((MAX_FAILURES - 1, 401), (3, 429)):
                for _ in range(wrong):
                    headers = {"Authorization": _basic("prometheus", "wrong")}
                    async with session.get(url, headers=headers) as answer:
                        assert answer.status == status, "secrets are not tried without end"
            served.server._scrapes.succeeded("127.0.0.1", "prometheus")
            refused = [json.loads(one.message) for one in caplog.records if one.name == AUDIT]
            assert {(one["method"], one["reason"]) for one in refused} == {
                ("Metrics", "UNAUTHENTICATED")
            }
            assert 'wrong"' not in caplog.text
            # A user without any right: names are all that is there to read.
            for name, secret in (
                ("prometheus", secret_of("prometheus")),
                (ADMIN.access_key, ADMIN.secret),
            ):
                headers = {"Authorization": _basic(name, secret)}
                async with session.get(url, headers=headers) as answer:
                    assert answer.status == 200
                    said = Samples(await answer.text())
                    labels = {"method": "Metrics", "reason": "UNAUTHENTICATED"}
                    assert said.get("kvcq_refusals_total", **labels) == 9 + MAX_FAILURES - 1


async def test_before_users_are_known_there_is_nothing_to_hide(tmp_path: Path) -> None:
    add_users(tmp_path / "store", {})
    opener = SlowOpener()
    async with serving(
        tmp_path / "store", opener=opener, wait_ready=False, metrics_port=0, access=True
    ) as served:
        status, text = await get(served, "/metrics")
        assert (status, Samples(text).get("kvcq_ready")) == (200, 0)
        opener.go_on.set()
        await served.until_ready()
        assert (await get(served, "/metrics"))[0] == 401


async def test_with_a_certificate_all_of_it_is_encrypted(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki")
    cert, key = authority.issue()
    trusting = ssl.create_default_context(cafile=str(authority.ca))
    async with (
        serving(tmp_path / "store", tls_cert=cert, tls_key=key, metrics_port=0) as served,
        ClientSession() as session,
    ):
        for path in ("/metrics", "/livez", "/readyz"):
            plain = url_of(served, path)
            secured = plain.replace("http:", "https:")
            async with session.get(secured, ssl=trusting) as answer:
                assert answer.status == 200
            with pytest.raises(ClientConnectorError):
                await session.get(secured)
            with pytest.raises(ClientConnectionError):
                await session.get(plain)
