"""kvcq_client/transport/connection.py: how long it waits for a server that is away."""

from __future__ import annotations

import asyncio
import socket

import grpc
import pytest

from kvcq_client.errors import ClosedError
from kvcq_client.transport.connection import Connection

_LONG_S = 60.0


async def test_a_wait_ends_when_a_server_that_was_away_is_back() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
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
