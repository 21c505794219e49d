"""Consumers far behind over real gRPC, served by a real reader process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
import pytest

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.reads import cold_reads
from server.reads import reader as reader_module
from tests.support.rpc_errors import error_info
from tests.support.serving import serving

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.serving import Served

pytestmark = pytest.mark.usefixtures("puts_come")
COUNT = 300
COLD = {"hot_read_bytes": 0}
WAIT_S = 60.0


@pytest.fixture
def puts_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as cold reads can see, however few there are."""
    monkeypatch.setattr(cold_reads, "FEW_BYTES_PER_S", -1)


async def _put(served: Served) -> None:
    await served.messages.PutBatch(
        pb.PutBatchRequest(
            messages=[
                pb.Message(topic="T", queue_id=0, body=b"%04d" % number * 250, tag="ab"[number % 2])
                for number in range(COUNT)
            ]
        )
    )


async def _pull(
    served: Served, form: pb.RecordForm = pb.RECORD_FORM_WHOLE, tags: str = ""
) -> bytes:
    request = pb.PullRequest(topic="T", max_messages=COUNT, form=form, tag_filter=tags)
    response = await served.messages.Pull(request)
    data: bytes = response.SerializeToString(deterministic=True)
    return data


async def _until_served_aside(served: Served) -> None:
    processes = served.serving.reads.processes
    answered = processes.answered
    async with asyncio.timeout(WAIT_S):
        while processes.answered == answered:
            await _pull(served)
            await asyncio.sleep(0.05)  # the processor is for the process, which starts


async def test_pulls_and_streams_far_behind_are_answered_by_a_process_as_by_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [
        (form, tags)
        for form in (pb.RECORD_FORM_WHOLE, pb.RECORD_FORM_DECODED)
        for tags in ("", "a")
    ]
    monkeypatch.setattr(reader_module, "COLD_PROCESSES", 0)
    async with serving(tmp_path / "s", store=COLD) as served:
        await _put(served)
        plain = [await _pull(served, *each) for each in wanted]
        for _ in range(5):
            await _pull(served)
        assert (await served.serving.levels())["server.cold_reads"] == 0
    monkeypatch.setattr(reader_module, "COLD_PROCESSES", 1)
    async with serving(tmp_path / "s", store=COLD) as served:
        processes = served.serving.reads.processes
        await _until_served_aside(served)
        before = processes.answered
        assert [await _pull(served, *each) for each in wanted] == plain
        assert processes.answered == before + len(wanted)
        for form in (pb.RECORD_FORM_WHOLE, pb.RECORD_FORM_DECODED):
            batch = await _first_of_stream(served, form)
            assert batch.SerializeToString(deterministic=True) == plain[wanted.index((form, ""))]
        assert processes.answered == before + len(wanted) + 2
        levels = await served.serving.levels()
        assert (levels["server.cold_readers"], levels["server.cold_reads"]) == (
            1,
            processes.answered,
        )
        # It dies: nobody notices.
        [reader] = processes._all
        assert reader._process is not None
        reader._process.kill()
        assert [await _pull(served, *each) for each in wanted] == plain


async def _first_of_stream(served: Served, form: pb.RecordForm) -> pb.PullResponse:
    call = served.messages.Subscribe()
    queue = pb.QueuePosition(topic="T")
    await call.write(pb.SubscribeRequest(add=[queue], credit_bytes=1 << 26, form=form))
    response = await call.read()
    assert isinstance(response, pb.SubscribeResponse)
    [found] = response.queues
    assert found.topic == "T"
    call.cancel()
    return found.batch


@pytest.mark.damages
async def test_damage_is_told_as_without_a_process(tmp_path: Path) -> None:
    async with serving(tmp_path / "s", store=COLD, damaged=True) as served:
        await _put(served)
        await _until_served_aside(served)
        with (tmp_path / "s" / "commitlog" / f"{0:020d}").open("r+b") as file:
            file.seek(200)
            file.write(b"?")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await _pull(served)
        assert error_info(refused.value).reason == "CORRUPT_RECORD"
