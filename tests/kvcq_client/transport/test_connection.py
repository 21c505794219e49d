"""kvcq_client/transport/connection.py: how long it waits for a server that is away."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
import pytest

from kvcq_client.errors import ClosedError, DeadlineError, UnavailableError
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.pb.v1 import kvcq_pb2_grpc
from kvcq_client.transport.connection import Connection
from tests.support.free_port import free_port

if TYPE_CHECKING:
    Context = grpc.aio.ServicerContext[pb.GetStatisticsRequest, pb.GetStatisticsResponse]

_LONG_S = 60.0


async def test_a_wait_ends_when_a_server_that_was_away_is_back() -> None:
    address = f"127.0.0.1:{free_port()}"
    connection = Connection(address)
    server = grpc.aio.server()
    try:
        assert not await connection.rest(0.01)
        resting = asyncio.create_task(connection.rest(_LONG_S))
        await asyncio.sleep(0)
        server.add_insecure_port(address)
        await server.start()
        async with asyncio.timeout(_LONG_S / 2):
            assert await resting
        # It is there: whoever was refused waits as long as they should.
        assert not await connection.rest(0.01)
    finally:
        await connection.close()
        await server.stop(None)
    with pytest.raises(ClosedError):
        await connection.rest(0.01)


async def test_a_last_try_that_had_no_time_left_says_why_those_before_it_failed() -> None:
    tries = iter((UnavailableError("connection refused"), DeadlineError("Deadline Exceeded")))

    async def ask(_: bytes, **__: object) -> bytes:
        raise next(tries)

    connection = Connection(f"127.0.0.1:{free_port()}")
    try:
        with pytest.raises(UnavailableError, match="connection refused"):
            await connection.call(ask, b"")
    finally:
        await connection.close()


async def test_a_call_that_grpc_cancels_is_made_again() -> None:
    """As it does with calls that come in while a server ends."""
    calls = 0

    class Cancelling(kvcq_pb2_grpc.AdminServiceServicer):
        async def GetStatistics(
            self, request: object, context: Context
        ) -> pb.GetStatisticsResponse:
            nonlocal calls
            calls += 1
            if calls == 1:
                await context.abort(grpc.StatusCode.CANCELLED, "")
            return pb.GetStatisticsResponse(version="the next one")

    server = grpc.aio.server()
    kvcq_pb2_grpc.add_AdminServiceServicer_to_server(Cancelling(), server)
    connection = Connection(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
    await server.start()
    try:
        request = pb.GetStatisticsRequest()
        answer = await connection.call(connection.admin.GetStatistics, request, timeout_s=_LONG_S)
        assert answer.version == "the next one"
    finally:
        await connection.close()
        await server.stop(None)
