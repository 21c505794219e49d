"""Spans of calls, by OpenTelemetry: only imported where they are asked for, by `server.tracing`.

Which spans are kept, where they go and what the service is called is for OpenTelemetry's own
variables of the environment to say.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.grpc import aio_server_interceptor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from server.version import VERSION

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import grpc
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span

#: What Kubernetes and load balancers ask every few seconds.
_NOT_TRACED = "/grpc.health.v1.Health/"
_NAME = "OTEL_SERVICE_NAME"


class Tracing:
    """Makes spans, and hands them to an exporter from a thread of OpenTelemetry's own."""

    def __init__(self, exporter: SpanExporter | None = None) -> None:
        """`exporter`: by OTLP over gRPC, if none is given."""
        name = {} if os.environ.get(_NAME) else {"service.name": "kvcq"}
        resource = Resource.create({**name, "service.version": VERSION})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter or OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("kvcq", VERSION)
        self._filter = SpanFilter()

    def interceptor(self) -> grpc.aio.ServerInterceptor[Any, Any]:
        """For the gRPC server: a span for each call, but for those that ask for its health."""
        made: grpc.aio.ServerInterceptor[Any, Any] = aio_server_interceptor(
            tracer_provider=self._provider,
            filter_=lambda call: not call.method.startswith(_NOT_TRACED),
        )
        return made

    def span(self, method: str) -> AbstractContextManager[Span]:
        """Around a call that came on a shared stream: within the span of the stream."""
        return self._tracer.start_as_current_span(method)

    def mark_log_lines(self) -> None:
        """What is logged within a span says so, until `close`."""
        for handler in logging.getLogger().handlers:
            handler.addFilter(self._filter)

    def close(self) -> None:
        """Hand over what is left. Blocks while the exporter takes it, or gives up."""
        for handler in logging.getLogger().handlers:
            handler.removeFilter(self._filter)
        self._provider.shutdown()


class SpanFilter(logging.Filter):
    """Adds `trace_id` and `span_id` to records that are made within a span."""

    def filter(self, record: logging.LogRecord) -> bool:
        span = trace.get_current_span().get_span_context()
        if span.is_valid:
            record.trace_id = trace.format_trace_id(span.trace_id)
            record.span_id = trace.format_span_id(span.span_id)
        return True
