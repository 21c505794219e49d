"""server/process/log_lines.py: records as lines."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

from server.process.log_lines import JsonLines, TextLines


def _record(message: str, *args: object, **extra: object) -> logging.LogRecord:
    record = logging.LogRecord("store.log", logging.WARNING, "x.py", 1, message, args, None)
    record.created = 1_700_000_000.25
    for name, value in extra.items():
        setattr(record, name, value)
    return record


def _json(record: logging.LogRecord) -> dict[str, Any]:
    line = JsonLines().format(record)
    assert "\n" not in line
    found: dict[str, Any] = json.loads(line)
    return found


def test_a_line_of_json_has_what_is_known() -> None:
    record = _record("%d bytes\nin 消息", 7, method="Put", request_id="a-1")
    assert _json(record) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "WARNING",
        "logger": "store.log",
        "thread": "MainThread",
        "message": "7 bytes\nin 消息",
        "method": "Put",
        "requestId": "a-1",
    }
    assert "requestId" not in _json(_record("of no call"))


def test_an_error_is_one_line_of_json_with_its_traceback() -> None:
    record = _record("failed")
    try:
        raise ValueError("inner")
    except ValueError:
        record.exc_info = sys.exc_info()
    found = _json(record)
    assert found["message"] == "failed"
    assert found["error"].startswith("Traceback")
    assert found["error"].endswith("ValueError: inner")


def test_text_names_the_request_once() -> None:
    line = TextLines().format(_record("failed", method="Put", request_id="a-1"))
    assert line.endswith("WARNING store.log: failed [Put, request id a-1]")
    line = TextLines().format(_record("failed, request id a-1", method="Put", request_id="a-1"))
    assert line.endswith("WARNING store.log: failed, request id a-1")
    assert TextLines().format(_record("of no call")).endswith("store.log: of no call")
