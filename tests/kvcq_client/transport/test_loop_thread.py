"""Clients that nobody closes: what they began goes on, and the end of a process is silent."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kvcq_client.transport.below_grpc import cygrpc
from kvcq_client.transport.loop_thread import LoopThread

if TYPE_CHECKING:
    from kvcq_client import AsyncClient
    from tests.support.serving import Served

ROOT = Path(__file__).parents[3]
ENDING = """
import sys
from kvcq_client import Client
def work():
    {names}
    client = Client(sys.argv[1])
    producer = client.producer()
    consumer = client.consumer({{("t", 0): 0}})
    raise RuntimeError("the program's own")
work()
"""

FORGETTING = """
import gc, sys
from kvcq_client import Client
Client(sys.argv[1]).producer()
Client(sys.argv[1]).producer(linger_ms=200).send("t", b"x", queue_id=0)
gc.collect()
with Client(sys.argv[1]) as client:
    assert client.pull("t", 0, 0, wait_s=30).messages
gc.collect()
"""


async def _run(program: str, target: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", program, target],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_what_grpc_tells_a_closed_loop_is_dropped_and_nothing_else() -> None:
    thread = LoopThread()
    thread.close()
    assert thread.loop.is_closed()
    thread.loop.call_soon_threadsafe(cygrpc._handle_callback_wrapper, None, 1)
    with pytest.raises(RuntimeError, match="closed"):
        thread.loop.call_soon_threadsafe(print)


@pytest.mark.parametrize("names", ["pass", "global client, producer, consumer"])
async def test_a_process_that_ends_by_an_error_tells_of_that_alone(
    served: Served, client: AsyncClient, names: str
) -> None:
    await client.create_topic("t", 1)
    ran = await _run(ENDING.format(names=names), served.target)
    first, *_, last = ran.stderr.splitlines()
    assert first == "Traceback (most recent call last):"
    assert last == "RuntimeError: the program's own"


async def test_what_a_forgotten_producer_has_is_delivered(
    served: Served, client: AsyncClient
) -> None:
    await client.create_topic("t", 1)
    ran = await _run(FORGETTING, served.target)
    assert (ran.returncode, ran.stderr) == (0, "")
