"""server/edge/edge.py over real gRPC: what is no request, too large, or too numerous is refused."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from typing import TYPE_CHECKING, Any, cast

import grpc
import pytest

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.config import ServerConfig
from server.edge.decoder import Decoder
from server.edge.request_fields import COUNT_LIMITS, plan_of
from server.edge.request_limits import _LIMITS, path_of, request_limit, shown_name
from tests.fuzz.requests import METHODS
from tests.support.rocketmq import SERVICE
from tests.support.rpc_errors import error_info

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, MethodDescriptor

    from tests.support.serving import Served

NAMES = [method.name for method in METHODS]
#: Those whose refusals are statuses of gRPC; the others are in tests/server/rocketmq.
BY_STATUS = [method for method in METHODS if method.containing_service.full_name != SERVICE]
GARBAGE = b"\xff" * 20


async def _refusal(
    served: Served, method: MethodDescriptor, request: bytes
) -> grpc.aio.AioRpcError:
    path = f"/{method.containing_service.full_name}/{method.name}"
    try:
        if method.server_streaming or method.client_streaming:
            call: Any = cast("Any", served.channel.stream_stream(path, None, None))()
            await call.write(request)
            while await call.read() is not grpc.aio.EOF:  # type: ignore[attr-defined]
                pass
            await call
        else:
            await served.channel.unary_unary(path, None, None)(request)
    except grpc.aio.AioRpcError as error:
        return error
    raise AssertionError(f"{method.name} took it")


def test_every_method_has_its_limits_and_no_other_has() -> None:
    assert {path_of(method) for method in METHODS} == set(_LIMITS)
    names = [shown_name(method) for method in METHODS]
    assert len(set(names)) == len(names), "they are told apart"
    config = ServerConfig()
    largest = max(request_limit(method, config).request_bytes for method in METHODS)
    assert largest == config.max_receive_bytes


def test_every_repeated_field_of_a_request_has_a_limit() -> None:
    found: set[str] = set()

    def walk(message: Descriptor) -> None:
        for field in message.fields:
            inner = field.message_type
            if field.is_repeated:
                found.add(field.full_name)
            if inner is not None and not inner.GetOptions().map_entry:
                walk(inner)

    for method in METHODS:
        plan_of(method.input_type)
        walk(method.input_type)
    assert found == set(COUNT_LIMITS)


async def test_an_undecodable_request_is_an_invalid_argument(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    for method in BY_STATUS:
        error = await _refusal(served, method, GARBAGE)
        info = error_info(error)
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT, method.name
        assert (info.reason, info.metadata["field"]) == ("INVALID_ARGUMENT", "request")
        assert method.input_type.full_name in (error.details() or "")
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


async def test_undecodable_requests_are_logged_once_a_second(
    served: Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 100.0
    monkeypatch.setattr(served.server._edge._refusals, "_now_s", lambda: now_s)
    method = METHODS[0]
    for _ in range(5):
        await _refusal(served, method, GARBAGE)
    assert len(caplog.records) == 1
    now_s = 101.0
    await _refusal(served, method, GARBAGE)
    assert "(4 similar lines omitted)" in caplog.records[-1].message


async def test_a_request_above_its_methods_limit_is_refused(served: Served) -> None:
    for method in BY_STATUS:
        limit = request_limit(method, ServerConfig()).request_bytes
        if limit > 4 << 20:
            continue
        # One unknown field: any type of request would decode it.
        data = b"\xfa\x7f" + _varint(limit) + bytes(limit)
        error = await _refusal(served, method, data)
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT, method.name
        assert error_info(error).metadata["field"] == "request"


def _varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


EMPTY_ELEMENTS = {
    "PutBatch messages": ("PutBatch", b"\x0a\x00" * (2 << 20), "messages"),
    "PutBatch bodies": (
        "PutBatch",
        pb.PutBatchRequest(
            columns=pb.MessageColumns(topics=["t"], bodies=[b""] * (1 << 20))
        ).SerializeToString(),
        "columns.bodies",
    ),
    "PutBatch packed column": (
        "PutBatch",
        pb.PutBatchRequest(
            columns=pb.MessageColumns(topics=["t"], bodies=[b"x"], born_times_ms=[1] * (1 << 20))
        ).SerializeToString(),
        "columns.born_times_ms",
    ),
    "Put keys": (
        "Put",
        pb.PutRequest(message=pb.Message(topic="t", keys=[""] * (1 << 20))).SerializeToString(),
        "message.keys",
    ),
    "Put one message in many pieces": (
        "Put",
        pb.PutRequest(message=pb.Message(topic="t", keys=["k"] * 10_000)).SerializeToString() * 40,
        "message",
    ),
    "Echo messages": (
        "Echo",
        b"\x0a" + _varint(2 << 20) + b"\x0a\x00" * (1 << 20),
        "batch.messages",
    ),
    "PutStream messages": (
        "PutStream",
        b"\x12" + _varint(2 << 20) + b"\x0a\x00" * (1 << 20),
        "batch.messages",
    ),
    "GetOffsets queues": ("GetOffsets", b"\x0a\x00" * (1 << 20), "queues"),
    "ResetOffsets queue_ids": (
        "ResetOffsets",
        pb.ResetOffsetsRequest(queue_ids=[1] * (100 << 10)).SerializeToString(),
        "queue_ids",
    ),
}


async def test_too_many_elements_are_refused_before_they_are_decoded(served: Served) -> None:
    for case, (name, data, field) in EMPTY_ELEMENTS.items():
        error = await _refusal(served, METHODS[NAMES.index(name)], data)
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT, case
        assert error_info(error).metadata["field"] == field, case


async def test_a_large_batch_is_taken(served: Served) -> None:
    messages = [
        pb.Message(topic="t", queue_id=0, body=b"x" * 100, properties={"a": "b"}, keys=["k", "l"])
    ] * 10_000
    answer = await served.messages.PutBatch(pb.PutBatchRequest(messages=messages))
    assert len(answer.queue_offsets) == 10_000


async def test_a_call_that_asks_for_nothing_is_refused(served: Served) -> None:
    put = cast("Any", served.channel.stream_unary("/kvcq.v1.MessageService/Put", None, None))
    call = put()
    await call.done_writing()
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    assert error_info(refused.value).metadata["field"] == "request"


async def test_a_refused_request_leaves_memory_at_once(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the collector, which comes seldom in the server's process."""
    kept: list[object] = []
    decode = Decoder._decode

    def noted(decoder: Decoder, data: bytes) -> object:
        request = decode(decoder, data)
        kept.append(request)
        return request

    monkeypatch.setattr(Decoder, "_decode", noted)
    gc.collect()
    gc.disable()
    try:
        refusals = (
            ("Put", pb.PutRequest(message=pb.Message(topic="no topic", body=bytes(100)))),
            ("PutBatch", pb.PutBatchRequest(messages=[pb.Message(topic="a b", body=bytes(100))])),
            ("PutBatch", pb.PutBatchRequest(messages=[pb.Message(topic="t", body=bytes(5 << 20))])),
            ("Pull", pb.PullRequest(topic="none")),
            ("Query", pb.QueryRequest(topic="none", key="k")),
            ("Get", pb.GetRequest(message_id="x")),
            ("GetOffsets", pb.GetOffsetsRequest(queues=[pb.Queue(topic="none")] * 100)),
            ("CommitOffsets", pb.CommitOffsetsRequest(group="a b")),
        )
        for name, request in refusals:
            await _refusal(served, METHODS[NAMES.index(name)], request.SerializeToString())
        await asyncio.sleep(0)
        assert len(kept) == len(refusals)
        # One reference is the list's, one the loop's, one the call's own.
        left = [type(one).__name__ for one in kept if sys.getrefcount(one) > 3]
        assert left == []
    finally:
        gc.enable()
