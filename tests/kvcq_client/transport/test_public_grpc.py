"""With gRPC's public calls only (`KVCQ_PUBLIC_GRPC`): everything works, and nothing leaks."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.serving import Served

ROOT = Path(__file__).parents[3]

#: Calls of every kind, given up in the middle, cancelled, moved; 40 KB each. Prints by how much the
#: process grew after the first rounds, in MiB.
ROUNDS = """
import asyncio, ctypes, gc, resource, sys
from contextlib import suppress
from pathlib import Path
from kvcq_client import AsyncClient, Queue
from kvcq_client.transport.below_grpc import cygrpc

BODY = bytes(40_000)

def resident():
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

async def main(target):
    async with AsyncClient(target) as client:
        queue = Queue("T", (await client.create_topic("T", 1)).queue_count - 1)
        consumer = await client.consumer("T", buffer_bytes=1 << 20)
        async with client.producer(linger_ms=0) as producer, consumer:
            for number in range(50):
                if number == 15:
                    before = resident()
                await client.put("T", BODY)
                for wait_s in (0.0005, 0.002, 0.004):  # given up before, in and behind the answer
                    for call in (client.put("T", BODY), client.pull("T", 0, 0, max_messages=8)):
                        with suppress(TimeoutError):
                            await asyncio.wait_for(call, wait_s)
                sendings = [await producer.send("T", BODY) for _ in range(20)]
                await sendings[-1]
                await consumer.take(4)
                await consumer.seek({queue: number})  # ends a stream in the midst of an answer
                async with AsyncClient(target) as another:
                    await asyncio.gather(*(another.pull("T", 0, 0) for _ in range(3)))
            print(cygrpc is None, (resident() - before) >> 20)

asyncio.run(main(sys.argv[1]))
"""


async def _run(served: Served, environment: dict[str, str]) -> list[str]:
    kept = {name: value for name, value in os.environ.items() if name != "KVCQ_PUBLIC_GRPC"}
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", ROUNDS, served.target],
        cwd=ROOT,
        env=kept | {"MALLOC_ARENA_MAX": "1"} | environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("is_public", [True, False])
@pytest.mark.slow
@pytest.mark.timeout(300)  # more than `_run` may take
async def test_calls_that_are_given_up_leave_no_memory_behind(
    served: Served, is_public: bool
) -> None:
    told, grown_mib = await _run(served, {"KVCQ_PUBLIC_GRPC": "1"} if is_public else {})
    assert told == str(is_public)
    assert int(grown_mib) < 16


@pytest.mark.slow
@pytest.mark.timeout(620)
def test_the_clients_tests_pass_with_public_calls_only() -> None:
    """All but those of the private calls themselves, which run both ways or say what they are."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-n", "2", "tests/kvcq_client"),
            *("-m", "not slow", "-p", "no:cacheprovider"),
        ],
        cwd=ROOT,
        env=os.environ | {"KVCQ_PUBLIC_GRPC": "1"},
        capture_output=True,
        text=True,
        timeout=600,  # below faulthandler_timeout, which ends a worker without a word
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
