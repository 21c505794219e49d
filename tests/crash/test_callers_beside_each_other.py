"""Many callers of one client put while its server is killed, again and again: what one of them was
told is stored is there, once; what one was told may be stored is there once at most."""

from __future__ import annotations

import asyncio
import random
import signal
from typing import TYPE_CHECKING

import pytest

from kvcq_client import AsyncClient, Message
from kvcq_client.errors import UnavailableError
from tests.support.free_port import free_port
from tests.support.server_process import ServerProcess

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.crash

CALLERS = 64
KILLS = 2
PUTS_BETWEEN = 400


@pytest.mark.parametrize("flush_mode", [pytest.param("async", marks=pytest.mark.slow), "sync"])
async def test_a_killed_server_loses_and_repeats_no_put(tmp_path: Path, flush_mode: str) -> None:
    pick = random.Random(flush_mode)
    stored: dict[bytes, int] = {}  # body to queue offset
    perhaps: set[bytes] = set()
    count = 0
    is_over = False
    enough = asyncio.Event()

    async def caller(client: AsyncClient, number: int) -> None:
        nonlocal count
        while not is_over:
            count += 1
            body = b"%d of caller %d" % (count, number)
            try:
                stored[body] = (await client.put(Message("T", body, 0))).queue_offset
            except UnavailableError:
                perhaps.add(body)
            if len(stored) >= wanted:
                enough.set()

    found: dict[bytes, int] = {}
    port = free_port()
    wanted = PUTS_BETWEEN
    callers: list[asyncio.Task[None]] = []
    client: AsyncClient | None = None
    flags = "--set", f"store.flush_mode={flush_mode}"
    for life in range(KILLS + 1):
        with ServerProcess(tmp_path, *flags, port=port) as server:
            await asyncio.to_thread(server.wait_for, "ready")
            if client is None:
                client = AsyncClient(server.target, timeout_s=60)
                callers = [asyncio.create_task(caller(client, at)) for at in range(CALLERS)]
            await asyncio.wait_for(enough.wait(), 60)
            if life < KILLS:
                wanted = len(stored) + PUTS_BETWEEN + pick.randrange(CALLERS)
                enough.clear()
                server.send(signal.SIGKILL)
                await asyncio.to_thread(server.wait)
                continue
            is_over = True
            await asyncio.gather(*callers)
            while pulled := (await client.pull("T", 0, len(found))).messages:
                for message in pulled:
                    assert message.body not in found, "stored twice"
                    found[message.body] = message.queue_offset
            await client.close()
    assert perhaps, "no kill met a put"
    assert {body: found.get(body) for body in stored} == stored
    assert found.keys() <= stored.keys() | perhaps
