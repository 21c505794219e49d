"""A server that was used in every way that has a metric."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import grpc
import pytest

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.pb.v1 import shared_groups_pb2 as shared_pb
from tests.support.serving import serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from tests.support.serving import Served

    #: What Prometheus answers to a query; nothing as long as it does not.
    Ask = Callable[[str], Awaitable[list[Any]]]

PATIENCE_S = 60.0
#: What of PromQL is a metric: the names that ours and the client library's begin with.
METRIC = re.compile(r"\b(?:kvcq|rocketmq|process|python)_\w+|\bup\b")


@asynccontextmanager
async def used_server(directory: Path) -> AsyncIterator[Served]:
    async with serving(directory, metrics_port=0, workers=2) as served:  # fronts have some too
        await use(served)
        yield served


async def use(served: Served) -> None:
    """Puts, a pull, a commit, what a shared group does, a dead letter, a refusal."""
    messages = [pb.Message(topic="orders", queue_id=0, body=b"x" * 100)] * 20
    await served.messages.PutBatch(pb.PutBatchRequest(messages=messages))
    await served.messages.Put(pb.PutRequest(message=messages[0]))
    await served.messages.Pull(pb.PullRequest(topic="orders"))
    position = pb.QueuePosition(topic="orders", queue_id=0, offset=5)
    await served.groups.CommitOffsets(pb.CommitOffsetsRequest(group="billing", offsets=[position]))
    settings = shared_pb.SharedGroupSettings(max_deliveries=1)
    await served.shared.CreateGroup(shared_pb.CreateGroupRequest(group="jobs", settings=settings))
    receive = shared_pb.ReceiveRequest(group="jobs", topic="orders", max_messages=1)
    found = await served.shared.Receive(receive)
    await served.shared.GiveBack(shared_pb.GiveBackRequest(group="jobs", handles=found.handles))
    await served.shared.Receive(receive)
    with pytest.raises(grpc.aio.AioRpcError):
        await served.messages.Pull(pb.PullRequest(topic="none"))


def names_in(query: str) -> set[str]:
    """The metrics that a query asks for; what is quoted is none."""
    return set(METRIC.findall(re.sub(r'"[^"]*"', '""', query)))


@asynccontextmanager
async def prometheus(
    directory: Path, served: Served, *rules: Path, **job: object
) -> AsyncIterator[Ask]:
    """A Prometheus that asks the server four times a second, and how to ask it. `job`: how it
    gets in.

    Skips the test where none is installed.
    """
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not installed (Debian: apt-get install prometheus)")
    target = f"127.0.0.1:{served.server.sites.ports['metrics']}"
    settings = {
        "global": {"scrape_interval": "250ms", "evaluation_interval": "250ms"},
        "rule_files": list(map(str, rules)),
        "scrape_configs": [
            {"job_name": "kvcq", "static_configs": [{"targets": [target]}], **job},
        ],
    }
    (directory / "prometheus.yml").write_text(json.dumps(settings))
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    process = subprocess.Popen(
        [
            *(program, "--config.file=prometheus.yml", "--storage.tsdb.path=tsdb"),
            f"--web.listen-address={address}",
        ],
        cwd=directory,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        async with aiohttp.ClientSession() as session:

            async def ask(query: str) -> list[Any]:
                """What it answers; nothing as long as it does not."""
                try:
                    url = f"http://{address}/api/v1/query"
                    async with session.get(url, params={"query": query}) as response:
                        answer = await response.json()
                except (aiohttp.ClientError, ValueError):
                    assert process.poll() is None
                    return []
                assert answer["status"] == "success", answer
                found: list[Any] = answer["data"]["result"]
                return found

            yield ask
    finally:
        process.kill()
        process.wait()
