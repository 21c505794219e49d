"""server/http/monitoring.py: the probes say what the health service says."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from grpc_health.v1 import health_pb2, health_pb2_grpc

from store.errors import StoreFailedError
from tests.server.app.test_server import SlowOpener
from tests.support.http import Samples, get
from tests.support.serving import serving

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.serving import Served


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
        ready = asyncio.Event()
        served.server._stage.on_change(ready.set)
        opener.go_on.set()
        await ready.wait()
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
        assert await get(served, "/livez") == (503, "the server ends\n")
        assert await get(served, "/readyz") == (503, "the server ends\n")


async def test_no_port_no_site(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        assert served.server.sites.ports == {}
        assert served.store.config.rocksdb_statistics is False
