"""A file system that fills up: messages that have not expired stay, puts wait for room."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import grpc
import pytest

from kvcq.opening import open_store
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from migration.migrator import begin_on_rocksdb
from migration.opening import open_any
from migration.state.state import read_state, write_state
from tests.support.rpc_errors import error_info
from tests.support.serving import serving
from tests.support.stores import small_config

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.serving import Served

ROUNDS = 12
BODY = b"x" * 100_000


def _put(number: int) -> pb.PutBatchRequest:
    return pb.PutBatchRequest(
        messages=[
            pb.Message(topic="T", queue_id=0, body=b"%d %d %s" % (number, n, BODY))
            for n in range(3)
        ]
    )


async def _pulled(served: Served) -> list[bytes]:
    found: list[bytes] = []
    while True:
        answer = await served.messages.Pull(
            pb.PullRequest(topic="T", queue_id=0, offset=len(found), max_messages=100)
        )
        found += [message.body for message in answer.messages]
        if answer.next_offset == answer.max_offset:
            return found


async def test_above_the_line_puts_are_refused_and_nothing_acknowledged_goes(
    tmp_path: Path,
) -> None:
    async with serving(
        tmp_path, store={"delete_when_hours": tuple(range(24)), "clean_interval_s": 1e6}
    ) as served:
        store = served.store
        ratios = iter((0.86, 0.93, 1.0, 0.6))
        store._appends._guard._gauge = lambda _: next(ratios)
        for number in range(ROUNDS):
            await served.messages.PutBatch(_put(number))
        store.flush()
        store.maintain()
        assert len(list((tmp_path / "commitlog").iterdir())) > 3
        for _ in range(3):
            store._services.retention.run_once()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await served.messages.PutBatch(_put(ROUNDS))
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert error_info(refused.value).reason == "DISK_FULL"
        assert store._services.retention.dropped_segments == 0
        values = (await served.admin.GetStatistics(pb.GetStatisticsRequest())).values
        assert values["store.puts_refused_for_space"] == 1
        assert values["store.disk_used_ratio"] == 1.0
        assert values["store.retention_read_errors"] == 0
        store._services.retention.run_once()
        await served.messages.PutBatch(_put(ROUNDS))
        wanted = [message.body for number in range(ROUNDS + 1) for message in _put(number).messages]
        assert await _pulled(served) == wanted


@pytest.mark.parametrize(
    ("broker", "operator", "wins"),
    [(None, None, None), (True, None, True), (False, None, False), (True, False, False)],
)
def test_a_store_that_was_taken_over_does_as_its_broker_did_unless_the_operator_says_otherwise(
    tmp_path: Path, broker: bool | None, operator: bool | None, wins: bool | None
) -> None:
    open_store(small_config(tmp_path)).close()
    begin_on_rocksdb(tmp_path)
    state = read_state(tmp_path)
    assert state is not None
    write_state(tmp_path, replace(state, reclaim_unexpired=broker))
    config = replace(small_config(tmp_path), reclaim_unexpired=operator)
    with open_any(config).store as store:
        assert store.config.reclaim_unexpired is wins
        assert store._services.retention._config.reclaim_unexpired is wins
