"""Clients with more connections than the server has descriptors: the store keeps its share."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from kvcq_client import AsyncClient, Message
from server.app import listening
from server.http.door import MOST_CONNECTIONS
from tests.support.few_descriptors import MOST
from tests.support.server_process import ServerProcess
from tests.support.serving import serving
from tests.support.until import LIMIT_S

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
@pytest.mark.integration
async def test_flushing_goes_on_while_clients_hold_all_connections_they_get(
    tmp_path: Path,
) -> None:
    module = "tests.support.few_descriptors"
    flags = ("--set", "server.metrics_port=0")
    async with AsyncExitStack() as stack:
        server = stack.enter_context(ServerProcess(tmp_path, *flags, module=module))
        server.wait_for("ready")
        client = await stack.enter_async_context(AsyncClient(server.target, timeout_s=60))
        await client.put(Message("t", b"first", queue_id=0))
        host, port = server.target.rsplit(":", 1)
        for _ in range(1500):
            held = socket.socket()
            stack.callback(held.close)
            held.setblocking(False)
            await asyncio.get_running_loop().sock_connect(held, (host, int(port)))
        for number in range(40):  # of 1 MiB: ten segments, each a new file, and RocksDB's
            await client.put(Message("t", bytes(1 << 20), queue_id=0, keys=(f"{number}",)))
        assert len((await client.query("t", "39")).messages) == 1
        assert server.events[-1]["event"] == "ready"
    assert not [line for line in server.errors if "Too many open files" in line]
    assert MOST_CONNECTIONS * 2 + MOST // listening.CONNECTIONS_SHARE < MOST * 0.8


async def test_a_connection_without_calls_or_a_handshake_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "IDLE_S", 0.3)
    monkeypatch.setattr(listening, "HANDSHAKE_S", 0.3)
    async with serving(tmp_path) as served:
        host, port = served.target.rsplit(":", 1)
        reader, writer = await asyncio.open_connection(host, int(port))
        async with asyncio.timeout(LIMIT_S):
            while await reader.read(1000):
                pass
        writer.close()
        await writer.wait_closed()
        async with AsyncClient(served.target) as client:
            await client.put(Message("t", b"x", queue_id=0))
            await asyncio.sleep(1.0)
            await client.put(Message("t", b"x", queue_id=0))
