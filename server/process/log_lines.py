"""Formats log records as lines: for people, or as JSON for programs.

A record may have `method` and `request_id` of its call, and the ids of its span.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

_OF_A_CALL = {
    "method": "method",
    "request_id": "requestId",
    "trace_id": "traceId",
    "span_id": "spanId",
}


class TextLines(logging.Formatter):
    """Time, level, logger, message; then the request, unless the message names it."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        line = super().formatMessage(record)
        request_id = getattr(record, "request_id", None)
        if request_id is None or request_id in line:
            return line
        return f"{line} [{record.__dict__['method']}, request id {request_id}]"


class JsonLines(logging.Formatter):
    """One object a line: time (UTC), level, logger, thread, message, and, if present, method,
    requestId, traceId, spanId, and error, which is a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        found: dict[str, object] = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "thread": record.threadName,
            "message": record.getMessage(),
        }
        for attribute, name in _OF_A_CALL.items():
            value = getattr(record, attribute, None)
            if value is not None:
                found[name] = value
        if record.exc_info:
            found["error"] = self.formatException(record.exc_info)
        return json.dumps(found, ensure_ascii=False)
