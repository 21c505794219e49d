"""A child process that inherits a client is told so at once, and never waits."""

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

# In a process of its own: the threads of the test would make a fork warn.
CHILD = """
import os, sys, time, warnings
from kvcq_client import Client, ForkedError, KvcqError, Message

warnings.simplefilter("ignore")
client = Client(sys.argv[1], timeout_s=20)
client.create_topic("t", 1)
while client._connection.call_stream.own is None:
    client.pull("t", 0, 0)
producer = client.producer(linger_ms=60_000)
consumer = client.consumer("t")
client.put(Message("t", b"first"))
assert next(consumer).body == b"first"
waiting = producer.send("t", b"second")
pid = os.fork()
if pid == 0:
    begun = time.monotonic()
    refused = 0
    for call in (
        lambda: client.put(Message("t", b"child")),
        lambda: list(client.topics()),
        lambda: client.producer(),
        lambda: producer.send("t", b"child"),
        lambda: producer.put(Message("t", b"child")),
        lambda: waiting.result(),
        lambda: next(consumer),
        lambda: consumer.commit(),
        lambda: Client(sys.argv[1]),
    ):
        try:
            call()
        except ForkedError as error:
            assert "spawn" in str(error), error
            refused += 1
    producer.flush()
    for thing in (consumer, producer, client):
        thing.close()
    print(refused, time.monotonic() - begun < 15, flush=True)
    os._exit(0)
_, status = os.waitpid(pid, 0)
producer.flush()
print(waiting.result().queue_offset, status, flush=True)
print(sorted(message.body.decode() for message in client.pull("t", 0, 0).messages))
client.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
async def test_calls_in_a_child_of_a_process_with_a_client_are_refused_at_once(
    served: Served,
) -> None:
    ran = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", CHILD, served.target],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.stdout.splitlines() == [
        "9 True",
        "1 0",
        "['first', 'second']",
    ], ran.stderr
