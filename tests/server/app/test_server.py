"""server/app/server.py: starting, readiness, draining; health and reflection over real gRPC."""

from __future__ import annotations

import asyncio
import errno
import shutil
import threading
from typing import TYPE_CHECKING

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.transport import from_rpc, is_retried
from migration.opening import open_any
from server.app import server as server_module
from server.app.service_table import SERVICES
from server.errors import ServerBindError
from store.errors import StoreFailedError, StoreFormatError
from tests.support.rpc_errors import error_info
from tests.support.serving import serving

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from migration.opening import Opened
    from store.config import StoreConfig
    from tests.support.serving import Served

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def _health(served: Served, service: str) -> int:
    stub = health_pb2_grpc.HealthStub(served.channel)
    answer = await stub.Check(health_pb2.HealthCheckRequest(service=service))
    return int(answer.status)


class SlowOpener:
    """Opens a store when the test says so."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def __call__(
        self, config: StoreConfig, *, progress: Callable[[str, float], None] | None = None
    ) -> Opened:
        assert progress is not None
        progress("replaying the log", 0.25)
        while not self.go_on.wait(0.01):
            progress("replaying the log", 0.5)
        return open_any(config, progress=progress)


async def test_alive_at_once_ready_when_the_store_is_open(tmp_path: Path) -> None:
    opener = SlowOpener()
    async with serving(tmp_path, opener=opener, wait_ready=False) as served:
        assert await _health(served, "") == SERVING
        assert await _health(served, "kvcq.ready") == NOT_SERVING
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await served.messages.Pull(pb.PullRequest(topic="t"))
        info = error_info(refused.value)
        assert (refused.value.code(), info.reason) == (grpc.StatusCode.UNAVAILABLE, "STARTING")
        assert info.metadata["step"] == "replaying the log"
        statistics = await served.admin.GetStatistics(pb.GetStatisticsRequest())
        assert statistics.values["server.ready"] == 0
        assert statistics.values["server.opening_progress"] >= 0.25
        watch = health_pb2_grpc.HealthStub(served.channel).Watch(
            health_pb2.HealthCheckRequest(service=SERVICES[0])
        )
        assert (await watch.read()).status == NOT_SERVING
        opener.go_on.set()
        assert (await watch.read()).status == SERVING
        for service in ("kvcq.ready", *SERVICES):
            assert await _health(served, service) == SERVING
        served.server.stop()
        assert (await watch.read()).status == NOT_SERVING
        assert not isinstance(await watch.read(), health_pb2.HealthCheckResponse), "it ends"


async def test_told_to_stop_while_opening_it_stops(tmp_path: Path) -> None:
    # Damaged: there is no store yet.
    async with serving(tmp_path, opener=SlowOpener(), wait_ready=False, damaged=True) as served:
        served.server.stop()


async def test_health_of_an_unknown_service_is_not_found(served: Served) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await _health(served, "other")
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND


async def test_reflection_lists_the_services(served: Served) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(served.channel)
    call = stub.ServerReflectionInfo()
    await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    answer = await call.read()
    await call.done_writing()
    listed = {service.name for service in answer.list_services_response.service}
    assert listed >= {*SERVICES, "grpc.health.v1.Health"}


async def test_a_store_that_cannot_be_opened_ends_the_server(tmp_path: Path) -> None:
    (tmp_path / "store.json").write_text('{"format": 999}')
    with pytest.raises(StoreFormatError):
        async with serving(tmp_path):
            pytest.fail("it must not become ready")


async def test_a_port_that_is_taken_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path / "one") as served:
        port = int(served.target.rpartition(":")[2])
        with pytest.raises(ServerBindError, match="in use"):
            async with serving(tmp_path / "two", port=port):
                pytest.fail("it must not become ready")


async def test_an_address_of_another_machine_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(ServerBindError) as refused:
        async with serving(tmp_path, host="192.0.2.1", insecure_listen=True):
            pytest.fail("it must not become ready")
    assert refused.value.reason.errno == errno.EADDRNOTAVAIL


async def test_calls_under_way_are_finished_before_the_store_closes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "DRAIN_NOTICE_S", 0.5)
    async with serving(tmp_path) as served:
        puts = [
            asyncio.ensure_future(
                served.messages.Put(
                    pb.PutRequest(message=pb.Message(topic="t", queue_id=0, body=b"%d" % number))
                )
            )
            for number in range(50)
        ]
        done, _ = await asyncio.wait(puts, return_when=asyncio.FIRST_COMPLETED)
        assert done
        served.server.stop()
        results = await asyncio.gather(*puts, return_exceptions=True)
    acknowledged = [one for one in results if isinstance(one, pb.PutResponse)]
    refused = [one for one in results if isinstance(one, grpc.aio.AioRpcError)]
    assert len(acknowledged) + len(refused) == 50
    # On a busy machine gRPC itself cancels those that it had not handed over when it stopped.
    assert all(is_retried(from_rpc(one)) for one in refused)
    async with serving(tmp_path) as again:
        offsets = await again.messages.GetOffsets(
            pb.GetOffsetsRequest(queues=[pb.Queue(topic="t", queue_id=0)])
        )
        assert offsets.queues[0].max_offset >= len(acknowledged)


async def test_an_unexpected_error_is_internal_and_logged(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("a secret")

    monkeypatch.setattr(served.store.reads, "plan_pull", broken)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await served.messages.Pull(pb.PullRequest(topic="t"))
    info = error_info(refused.value)
    assert (refused.value.code(), info.reason) == (grpc.StatusCode.INTERNAL, "INTERNAL")
    assert "secret" not in (refused.value.details() or "")
    assert info.metadata["requestId"] in caplog.text
    assert "a secret" in caplog.text


async def test_what_a_caller_did_is_no_error_in_the_log(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    def batch(sequence: int, body: bytes) -> pb.PutBatchRequest:
        return pb.PutBatchRequest(
            messages=[pb.Message(topic="t", body=body)] * 2,
            producer=pb.ProducerSequence(producer_id="p", sequence=sequence),
        )

    await served.messages.PutBatch(batch(0, b"x"))
    for reason, request in (
        ("NUMBER_REUSED", batch(0, b"y")),
        ("NUMBER_PASSED", batch(1, b"x")),
        ("OUT_OF_SEQUENCE", batch(7, b"x")),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await served.messages.PutBatch(request)
        assert error_info(refused.value).reason == reason
    assert [one for one in caplog.records if one.levelname == "ERROR"] == []


async def test_statistics_count_each_message_that_is_stored_once(served: Served) -> None:
    messages = [pb.Message(topic="t", queue_id=0, body=b"x")] * 3
    producer = pb.ProducerSequence(producer_id="p", sequence=0)
    await served.messages.PutBatch(pb.PutBatchRequest(messages=messages))
    for _ in range(2):
        await served.messages.PutBatch(pb.PutBatchRequest(messages=messages, producer=producer))
    refused = [pb.Message(topic="t", queue_id=99, body=b"x")]
    with pytest.raises(grpc.aio.AioRpcError):
        await served.messages.PutBatch(pb.PutBatchRequest(messages=refused))
    answer = await served.admin.GetStatistics(pb.GetStatisticsRequest())
    assert answer.values["server.messages_put"] == 6


async def test_statistics_count_calls_and_refusals(served: Served) -> None:
    message = pb.Message(topic="t", queue_id=0, body=b"x")
    await served.messages.Put(pb.PutRequest(message=message))
    with pytest.raises(grpc.aio.AioRpcError):
        await served.messages.Pull(pb.PullRequest(topic="none"))
    answer = await served.admin.GetStatistics(pb.GetStatisticsRequest())
    assert answer.values["server.calls.Put"] == 1
    assert answer.values["server.messages_put"] == 1
    assert answer.values["server.refusals.Pull.UNKNOWN_TOPIC"] == 1
    assert answer.values["store.log_appended_offset"] > 0
    assert answer.values["server.ready"] == 1


async def test_asking_for_the_statistics_does_not_change_them(served: Served) -> None:
    first = await served.admin.GetStatistics(pb.GetStatisticsRequest())
    second = await served.admin.GetStatistics(pb.GetStatisticsRequest())
    assert not any("GetStatistics" in name for name in second.values)
    assert 0 < first.values["server.uptime_s"] < second.values["server.uptime_s"]


async def _watch_it_go(root: Path) -> None:
    async with serving(root) as served:
        await served.messages.Put(pb.PutRequest(message=pb.Message(topic="T", body=b"x")))
        watch = health_pb2_grpc.HealthStub(served.channel).Watch(
            health_pb2.HealthCheckRequest(service="kvcq.ready")
        )
        assert (await watch.read()).status == SERVING
        shutil.rmtree(root)
        assert (await watch.read()).status == NOT_SERVING
        assert await _health(served, "") == SERVING
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await served.messages.Put(pb.PutRequest(message=pb.Message(topic="T", body=b"y")))
        assert error_info(refused.value).reason == "STORE_FAILED"


async def test_a_server_whose_data_directory_is_gone_is_not_ready(tmp_path: Path) -> None:
    # Closing what is gone says so.
    with pytest.raises(StoreFailedError, match="removed or replaced"):
        await _watch_it_go(tmp_path / "store")
