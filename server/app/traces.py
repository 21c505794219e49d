"""Traces calls with OpenTelemetry; only imported if `server.tracing` is on.

Sampling, exporter and service name are set by OpenTelemetry's own environment variables.
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

#: Called every few seconds by Kubernetes and load balancers.
_NOT_TRACED = "/grpc.health.v1.Health/"
_NAME = "OTEL_SERVICE_NAME"


class Tracing:
    """Creates spans, and exports them on a thread of OpenTelemetry's."""

    def __init__(self, exporter: SpanExporter | None = None) -> None:
        """`exporter`: by default OTLP over gRPC."""
        name = {} if os.environ.get(_NAME) else {"service.name": "kvcq"}
        resource = Resource.create({**name, "service.version": VERSION})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter or OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("kvcq", VERSION)
        self._filter = SpanFilter()

    def interceptor(self) -> grpc.aio.ServerInterceptor[Any, Any]:
        """An interceptor for the gRPC server: a span for each call, except health checks."""
        made: grpc.aio.ServerInterceptor[Any, Any] = aio_server_interceptor(
            tracer_provider=self._provider,
            filter_=lambda call: not call.method.startswith(_NOT_TRACED),
        )
        return made

    def span(self, method: str) -> AbstractContextManager[Span]:
        """A span for a call on a shared stream, inside the stream's span."""
        return self._tracer.start_as_current_span(method)

    def mark_log_lines(self) -> None:
        """Add the ids of the current span to log lines, until `close`."""
        for handler in logging.getLogger().handlers:
            handler.addFilter(self._filter)

    def close(self) -> None:
        """Export the remaining spans. Blocks until the exporter has taken them, or gives up."""
        for handler in logging.getLogger().handlers:
            handler.removeFilter(self._filter)
        self._provider.shutdown()


class SpanFilter(logging.Filter):
    """Adds `trace_id` and `span_id` to log records created inside a span."""

    def filter(self, record: logging.LogRecord) -> bool:
        span = trace.get_current_span().get_span_context()
        if span.is_valid:
            record.trace_id = trace.format_trace_id(span.trace_id)
            record.span_id = trace.format_span_id(span.span_id)
        return True
