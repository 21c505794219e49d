"""server/metrics/activity.py and GetActivity: what is put and pulled, and who is behind."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
import pytest

from kvcq_client import AsyncClient, Message
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.metrics import activity
from tests.support.rpc_errors import error_info
from tests.support.serving import serving

if TYPE_CHECKING:
    from pathlib import Path

    from server.metrics.survey import Surveyed


async def test_traffic_and_lags_are_told(tmp_path: Path) -> None:
    async with (
        serving(tmp_path) as served,
        AsyncClient(served.target, timeout_s=10) as client,
    ):
        assert (await client.activity()).groups == []
        for _ in range(5):
            await client.put(Message("T", b"x", queue_id=0, light_queues=("%LMQ%a",)))
        await served.messages.Pull(pb.PullRequest(topic="T", queue_id=0, max_messages=2))
        await served.messages.Pull(pb.PullRequest(topic="%LMQ%a", max_messages=1))
        await served.groups.CommitOffsets(
            pb.CommitOffsetsRequest(
                group="g", offsets=[pb.QueuePosition(topic="T", queue_id=0, offset=2)]
            )
        )
        served.serving.activity._found = None  # as if a second had passed
        found = await client.activity()
        topics = {one.topic: one for one in found.topics}
        assert topics["T"].messages_in == 5
        assert topics["T"].messages_out == 2
        assert topics["T"].bytes_in > 5
        assert topics["%LMQ%"].messages_out == 1
        [lag] = found.groups
        assert lag[:3] == ("g", "T", 3)
        assert lag.since_ms is not None
        assert (found.topic_count, found.group_count) == (1, 1)
        assert found.groups_at_ms is not None


async def test_however_many_ask_the_store_is_looked_at_once_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as served:
        looks: list[Surveyed] = []
        survey = served.serving.activity._survey
        look = survey.go_on

        def counted() -> Surveyed:
            looks.append(look())
            return looks[-1]

        monkeypatch.setattr(survey, "go_on", counted)
        now = [1000.0]
        monkeypatch.setattr(activity, "monotonic", lambda: now[0])
        await asyncio.gather(*(served.serving.activity.look() for _ in range(50)))
        assert len(looks) == 1
        now[0] += activity.CACHE_S
        await served.serving.activity.look()
        assert len(looks) == 2


async def test_before_the_store_is_open_there_is_nothing_to_tell(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        served.server._stage._open = False
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await served.admin.GetActivity(pb.GetActivityRequest())
        assert error_info(refused.value).reason == "STARTING"
        served.server._stage._open = True
