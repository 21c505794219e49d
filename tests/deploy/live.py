"""A server that was used in every way that has a metric."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import grpc
import pytest

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from tests.support.serving import serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.serving import Served

#: What of PromQL is a metric: the names that ours and the client library's begin with.
METRIC = re.compile(r"\b(?:kvcq|rocketmq|process|python)_\w+|\bup\b")


@asynccontextmanager
async def used_server(directory: Path) -> AsyncIterator[Served]:
    async with serving(directory, metrics_port=0) as served:
        await use(served)
        yield served


async def use(served: Served) -> None:
    """Puts, a pull, a commit, a refusal."""
    messages = [pb.Message(topic="orders", queue_id=0, body=b"x" * 100)] * 20
    await served.messages.PutBatch(pb.PutBatchRequest(messages=messages))
    await served.messages.Put(pb.PutRequest(message=messages[0]))
    await served.messages.Pull(pb.PullRequest(topic="orders"))
    position = pb.QueuePosition(topic="orders", queue_id=0, offset=5)
    await served.groups.CommitOffsets(pb.CommitOffsetsRequest(group="billing", offsets=[position]))
    with pytest.raises(grpc.aio.AioRpcError):
        await served.messages.Pull(pb.PullRequest(topic="none"))


def names_in(query: str) -> set[str]:
    """The metrics that a query asks for; what is quoted is none."""
    return set(METRIC.findall(re.sub(r'"[^"]*"', '""', query)))
