"""What `kvcq serve` logs at each level, and where the lines of `debug` come from."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import grpc
import pytest

from kvcq_client.pb.v1 import jobs_pb2
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.cli.serve import _set_log_level
from server.config import LogLevel, ServerConfig
from tests.support.serving import serving

if TYPE_CHECKING:
    from pathlib import Path

OWN = ("server.metrics", "store.log.flush", "kvcq.opening", "migration.steps.live")
FOREIGN = ("grpc._cython.cygrpc", "asyncio")


@pytest.mark.parametrize("level", LogLevel)
def test_details_are_the_products_own(level: LogLevel, tmp_path: Path) -> None:
    config = ServerConfig(data_dir=tmp_path)
    for each in (LogLevel.DEBUG, LogLevel.ERROR, level):  # it changes while the server runs
        _set_log_level(replace(config, log_level=each))
    least = logging.getLevelNamesMapping()[level.name]
    assert {logging.getLogger(name).getEffectiveLevel() for name in OWN} == {least}
    foreign = {logging.getLogger(name).getEffectiveLevel() for name in FOREIGN}
    assert foreign == {max(least, logging.INFO)}


async def test_each_door_has_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for package in ("store", "server", "migration"):
        caplog.set_level(logging.DEBUG, package)
    async with serving(tmp_path / "store") as served:
        await served.messages.Put(pb.PutRequest(message=pb.Message(topic="T", body=b"x")))
        with pytest.raises(grpc.aio.AioRpcError):
            await served.topics.DescribeTopic(pb.DescribeTopicRequest(name="none"))
        view = served.serving.jobs.jobs.start("expire", jobs_pb2.ExpireJob(), {})
        await asyncio.to_thread(served.serving.jobs.jobs.wait, view.job_id)
    text = "\n".join(
        record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG
    )
    for words in (
        "the store is open",
        "Put ended after ",
        "DescribeTopic is refused with UNKNOWN_TOPIC",
        "dispatched 1 records, up to physical offset ",
        "flushed up to ",
        f"job {view.job_id}, expire, begins",
        f"job {view.job_id}, expire, ended",
    ):
        assert words in text, words
