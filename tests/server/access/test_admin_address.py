"""Administration on an address of its own: there, and by no detour anywhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import pytest

from kvcq_client import AsyncClient, Message, NotPossibleError
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.pb.v1 import kvcq_pb2_grpc, migration_pb2
from server.app.service_table import _ADMINISTRATION, SERVED
from server.config import ServerConfig
from server.errors import HttpBindError
from store.errors import InvalidArgumentError
from tests.support.serving import serving

if TYPE_CHECKING:
    from pathlib import Path


async def test_administration_is_served_there_and_the_rest_here(tmp_path: Path) -> None:
    async with serving(tmp_path / "store", admin_port=0) as served:
        port = served.server.admin_port
        assert port is not None
        async with (
            AsyncClient(served.target) as client,
            AsyncClient(f"127.0.0.1:{port}") as admin,
        ):
            await client.put(Message("T", b"x"))
            await admin.ping()
            assert (await admin.migration.status()).log_end_offset
            assert (await admin.statistics())["server.messages_put"] == 1
            calls = (client.statistics, client.migration.status, client.jobs.list)
            for call in calls:
                with pytest.raises(NotPossibleError, match=f"127.0.0.1:{port}") as refused:
                    await call()
                assert refused.value.metadata["port"] == str(port)
            with pytest.raises(grpc.aio.AioRpcError) as unknown:
                await admin._connection.messages.Put(pb.PutRequest())
            assert unknown.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_shared_stream_leads_nowhere_else(tmp_path: Path) -> None:
    async with serving(tmp_path / "store", admin_port=0) as served:
        stream: Any = kvcq_pb2_grpc.CallServiceStub(served.channel).Calls()
        for kind in _ADMINISTRATION:
            for method in SERVED[kind].methods:
                if method.server_streaming:
                    continue
                await stream.write(pb.CallsRequest(calls=[pb.Call(id=1, method=method.name)]))
                answer = (await stream.read()).results[0]
                assert answer.error.reason == "SERVED_ELSEWHERE", method.name
        stream.cancel()
        status = migration_pb2.GetMigrationStatusRequest()
        path = "/kvcq.v1.MigrationService/GetMigrationStatus"
        with pytest.raises(Exception, match="administration is only served on"):
            await served.channel.unary_unary(path, None, None)(status.SerializeToString())


async def test_the_address_is_checked_as_the_other_is(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        ServerConfig(admin_port=9000, admin_host="0.0.0.0")
    assert refused.value.field == "admin_host"
    with pytest.raises(InvalidArgumentError, match="admin_port"):
        ServerConfig(admin_port=70_000)
    async with serving(tmp_path / "one") as served:
        port = int(served.target.rpartition(":")[2])
        with pytest.raises(HttpBindError, match="in use") as taken:
            async with serving(tmp_path / "two", admin_port=port):
                pytest.fail("it must not become ready")
        assert taken.value.name == "admin"
