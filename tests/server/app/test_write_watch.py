"""server/app/write_watch.py: a store that cannot write is not ready, and is again when it can."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import TYPE_CHECKING

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.app import write_watch
from store.errors import FlushError
from tests.support.rpc_errors import error_info
from tests.support.serving import serving

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.serving import Served

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_watch, "LOOK_EVERY_S", 0.001)


class Readiness:
    """What a load balancer sees."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._stub = health_pb2_grpc.HealthStub(served.channel)
        self._watch = self._stub.Watch(health_pb2.HealthCheckRequest(service="kvcq.ready"))

    async def next(self) -> int:
        async with asyncio.timeout(30):
            return int((await self._watch.read()).status)

    async def of(self, service: str) -> int:
        request = health_pb2.HealthCheckRequest(service=service)
        return int((await self._stub.Check(request)).status)

    def measure(self) -> None:
        """As the retention job does."""
        self._served.store._services.retention.run_once()


async def _put(served: Served) -> None:
    message = pb.Message(topic="T", queue_id=0, body=b"x")
    await served.messages.Put(pb.PutRequest(message=message))


async def test_a_full_disk_is_not_ready_until_there_is_room(tmp_path: Path) -> None:
    async with serving(tmp_path, store={"clean_interval_s": 1e6}) as served:
        readiness = Readiness(served)
        assert await readiness.next() == SERVING
        await _put(served)
        guard = served.store._appends._guard
        guard._gauge = lambda _: 0.95
        readiness.measure()
        assert await readiness.next() == NOT_SERVING
        why = served.server._stage.why_not_ready
        assert why is not None
        assert "disk 95.0% used" in why
        assert await readiness.of("") == SERVING, "a restart would not help"
        assert await readiness.of("kvcq.v1.MessageService") == NOT_SERVING
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await _put(served)
        assert error_info(refused.value).reason == "DISK_FULL"
        pulled = await served.messages.Pull(pb.PullRequest(topic="T", queue_id=0))
        assert len(pulled.messages) == 1, "what is there is read all the same"
        guard._gauge = lambda _: 0.5
        readiness.measure()
        assert await readiness.next() == SERVING
        await _put(served)


@pytest.mark.parametrize("number", [errno.EROFS, errno.EIO, errno.ENOSPC, errno.EDQUOT])
async def test_a_disk_that_takes_no_write_is_not_ready(
    tmp_path: Path, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, store={"clean_interval_s": 1e6}) as served:
        readiness = Readiness(served)
        assert await readiness.next() == SERVING
        guard = served.store._appends._guard
        probe = guard._probe
        guard._probe = lambda _: OSError(number, os.strerror(number))
        readiness.measure()
        assert await readiness.next() == NOT_SERVING
        assert served.server._stage.why_not_ready == (
            f"the store rejects writes: no file can be written: {os.strerror(number)}"
        )
        guard._probe = probe
        readiness.measure()
        assert await readiness.next() == SERVING
    assert "not ready: the store rejects writes" in caplog.text
    assert "files can be written again" not in caplog.text, "that is told at level INFO"


@pytest.mark.parametrize(
    "fail",
    [
        lambda store: store._appends.flushed.fail(FlushError("the disk said no")),
        lambda store: store._appends.dispatched.fail(FlushError("the disk said no")),
    ],
)
@pytest.mark.damages
async def test_a_failed_fsync_is_not_ready_before_the_next_start(
    tmp_path: Path,
    fail: Callable[[object], None],
) -> None:
    async with serving(tmp_path, damaged=True) as served:
        readiness = Readiness(served)
        assert await readiness.next() == SERVING
        fail(served.store)
        assert await readiness.next() == NOT_SERVING
        assert await readiness.of("") == SERVING
        why = served.server._stage.why_not_ready
        assert why is not None
        assert "rejects writes" in why
