"""server/edge/call_info.py: log lines say for which call they are."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import grpc
import pytest

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.edge.call_info import CALL, CallFilter
from store.errors import CorruptRecordError
from tests.support.rpc_errors import error_info

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.serving import Served


class Kept(logging.Handler):
    """As the server's own handler: it is asked on the thread that logs."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.addFilter(CallFilter())

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def kept() -> Iterator[Kept]:
    handler = Kept()
    logging.getLogger().addHandler(handler)
    yield handler
    logging.getLogger().removeHandler(handler)


def _of_calls(kept: Kept) -> list[tuple[str, str]]:
    return [
        (record.__dict__["method"], record.__dict__["request_id"])
        for record in kept.records
        if "method" in record.__dict__
    ]


def _log_and_fail(*_: object, **__: object) -> None:
    logging.getLogger("store").warning("in the middle")
    raise KeyError("a defect")


@pytest.mark.parametrize("own", [(("x-request-id", "mine-7"),), ()])
async def test_all_lines_of_a_call_have_the_id_that_its_caller_is_told(
    served: Served, kept: Kept, monkeypatch: pytest.MonkeyPatch, own: tuple[tuple[str, str], ...]
) -> None:
    monkeypatch.setattr(served.store, "query", _log_and_fail)  # in a worker
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await served.messages.Query(pb.QueryRequest(topic="t", key="k"), metadata=own)
    request_id = error_info(refused.value).metadata["requestId"]
    assert _of_calls(kept) == [("Query", request_id)] * 2
    if own:
        assert request_id == "mine-7"


async def test_calls_beside_each_other_have_ids_of_their_own(
    served: Served, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served.store, "query", _log_and_fail)
    requests = [
        served.messages.Query(
            pb.QueryRequest(topic="t", key="k"), metadata=(("x-request-id", f"id-{number}"),)
        )
        for number in range(8)
    ]
    await asyncio.gather(*requests, return_exceptions=True)
    expected = sorted(("Query", f"id-{number}") for number in range(8))
    assert sorted(set(_of_calls(kept))) == expected
    assert len(_of_calls(kept)) == 16


async def test_a_stream_has_one_id(
    served: Served, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    def corrupt(*_: object, **__: object) -> None:
        raise CorruptRecordError(0, "a flipped bit")

    monkeypatch.setattr(served.store.reads, "plan_pull", corrupt)
    await served.messages.Put(pb.PutRequest(message=pb.Message(topic="t", queue_id=0)))
    call = served.messages.Subscribe(metadata=(("x-request-id", "mine-8"),))
    await call.write(pb.SubscribeRequest(add=[pb.QueuePosition(topic="t")], credit_bytes=1 << 20))
    answer = await call.read()
    assert answer.queues[0].error.metadata["requestId"] == "mine-8"
    call.cancel()
    assert set(_of_calls(kept)) == {("Subscribe", "mine-8")}


def test_outside_of_calls_nothing_is_added(kept: Kept) -> None:
    assert CALL.get(None) is None
    logging.getLogger("store").warning("by itself")
    assert _of_calls(kept) == []
    assert len(kept.records) == 1
