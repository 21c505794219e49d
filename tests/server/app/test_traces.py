"""server/app/traces.py: a span for each call, by OpenTelemetry's own instrumentation."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

import grpc
import pytest

from kvcq_client import AsyncClient, Message
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.config import ServerConfig
from store.errors import InvalidArgumentError
from tests.support.serving import serving

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("opentelemetry.instrumentation.grpc", reason="the tracing extra is missing")

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from server.app import server as app
from server.app import traces

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """What the server hands over; all of it once the server has ended."""
    exporter = InMemorySpanExporter()
    monkeypatch.setattr(traces, "OTLPSpanExporter", lambda: exporter)
    return exporter


def _by_name(exported: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name.rpartition("/")[2]: span for span in exported.get_finished_spans()}


async def test_a_call_is_a_span_and_a_child_of_its_callers(
    tmp_path: Path, exported: InMemorySpanExporter
) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with serving(tmp_path, tracing=True) as served:
        message = pb.Message(topic="t", queue_id=0, body=b"x")
        await served.messages.Put(
            pb.PutRequest(message=message), metadata=(("traceparent", parent),)
        )
        with pytest.raises(grpc.aio.AioRpcError):
            await served.messages.Pull(pb.PullRequest(topic="none"))
    spans = _by_name(exported)
    put, pull = spans["Put"], spans["Pull"]
    assert put.name.lstrip("/") == "kvcq.v1.MessageService/Put"
    assert put.context is not None
    assert put.parent is not None
    assert f"{put.context.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"
    assert f"{put.parent.span_id:016x}" == "b7ad6b7169203331"
    assert pull.parent is None
    assert put.attributes is not None
    assert pull.attributes is not None
    assert put.attributes["rpc.grpc.status_code"] == 0
    assert pull.attributes["rpc.grpc.status_code"] == grpc.StatusCode.NOT_FOUND.value[0]
    assert put.resource.attributes["service.name"] == "kvcq"


async def test_calls_on_a_shared_stream_are_spans_within_it(
    tmp_path: Path, exported: InMemorySpanExporter
) -> None:
    async with serving(tmp_path, tracing=True) as served, AsyncClient(served.target) as client:
        for body in (b"x", b"y"):
            await client.put(Message("t", body, queue_id=0))
    spans = exported.get_finished_spans()
    [stream] = [span for span in spans if span.name.endswith("/Calls")]
    puts = [span for span in spans if span.name == "Put"]
    assert len(puts) == 2
    assert stream.context is not None
    assert {span.parent and span.parent.span_id for span in puts} == {stream.context.span_id}


async def test_streams_have_a_span_each_and_go_on_as_before(
    tmp_path: Path, exported: InMemorySpanExporter
) -> None:
    async with serving(tmp_path, tracing=True) as served:
        batch = pb.PutBatchRequest(messages=[pb.Message(topic="t", queue_id=0, body=b"x")] * 3)
        stream = served.messages.PutStream()
        for number in range(5):
            await stream.write(pb.PutStreamRequest(request_id=number, batch=batch))
        await stream.done_writing()
        assert [answer.request_id async for answer in stream] == [0, 1, 2, 3, 4]
        pulled = await served.messages.Pull(pb.PullRequest(topic="t"))
        assert len(pulled.messages) == 15
    assert set(_by_name(exported)) == {"PutStream", "Pull"}


async def test_log_lines_of_a_call_name_its_span(
    tmp_path: Path, exported: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    records: list[logging.LogRecord] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    handler = Kept()
    logging.getLogger().addHandler(handler)

    def broken(*_: object, **__: object) -> None:
        logging.getLogger("store").warning("in a worker")
        raise KeyError("a defect")

    try:
        async with serving(tmp_path, tracing=True) as served:
            monkeypatch.setattr(served.store, "query", broken)
            with pytest.raises(grpc.aio.AioRpcError):
                await served.messages.Query(pb.QueryRequest(topic="t", key="k"))
    finally:
        logging.getLogger().removeHandler(handler)
    span = _by_name(exported)["Query"]
    assert span.context is not None
    [line] = [record for record in records if record.getMessage() == "in a worker"]
    assert line.__dict__["trace_id"] == f"{span.context.trace_id:032x}"
    assert line.__dict__["span_id"] == f"{span.context.span_id:016x}"
    assert handler.filters == []


async def test_off_there_is_no_span_and_nothing_in_the_way(
    tmp_path: Path, exported: InMemorySpanExporter
) -> None:
    async with serving(tmp_path) as served:
        assert served.server._tracing is None
        await served.messages.Put(pb.PutRequest(message=pb.Message(topic="t", queue_id=0)))
    assert exported.get_finished_spans() == ()


def test_what_is_not_installed_is_named_with_what_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "server.app.traces", None)
    with pytest.raises(InvalidArgumentError, match=r"kvcq\[tracing\]") as refused:
        app._tracing_of(ServerConfig(tracing=True))
    assert refused.value.field == "server.tracing"
