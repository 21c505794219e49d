"""The current call, for log lines.

The id is computed on demand, since most calls log nothing.
"""

from __future__ import annotations

import logging
import re
import uuid
from contextvars import ContextVar
from time import monotonic
from typing import Any, cast

import grpc

Context = grpc.aio.ServicerContext[Any, Any]

REQUEST_ID = "x-request-id"
_REQUEST_ID_FORM = re.compile(r"[\x21-\x7e]{1,128}")


class CallInfo:
    """Method and id of a call. Owned by the event loop's thread; `request_id` on any."""

    __slots__ = ("_context", "_request_id", "method")

    def __init__(self, method: str, context: Context) -> None:
        self.method = method
        self._context: Context | None = context
        self._request_id: str | None = None

    def is_of(self, context: Context) -> bool:
        return self._context is context

    @property
    def request_id(self) -> str:
        """The caller's id, or one that is generated on first use."""
        if self._request_id is None:
            self._request_id = _id_in(self._context) or uuid.uuid4().hex
        return self._request_id

    def ended(self) -> None:
        """Release gRPC's data of the call; timers and tasks that it started may outlive it."""
        self._context = None


#: Set for each call where it comes in; calls that share a stream have that of the stream.
CALL: ContextVar[CallInfo] = ContextVar("call")


def request_id_of(context: Context) -> str:
    """The caller's id for this request, or a new one: the same as in log lines."""
    call = CALL.get(None)
    if call is not None and call.is_of(context):
        return call.request_id
    return _id_in(context) or uuid.uuid4().hex


def _id_in(context: Context | None) -> str | None:
    if context is not None:
        for name, value in context.invocation_metadata() or ():
            if name == REQUEST_ID and isinstance(value, str) and _REQUEST_ID_FORM.fullmatch(value):
                return value
    return None


class _InnerContext:
    __slots__ = ("_end_s", "_metadata", "_peer")

    def __init__(self, peer: str, metadata: object, timeout_ms: int) -> None:
        self._peer = peer
        self._metadata = metadata
        self._end_s = monotonic() + timeout_ms / 1000 if timeout_ms else None

    def peer(self) -> str:
        return self._peer

    def time_remaining(self) -> float | None:
        return None if self._end_s is None else self._end_s - monotonic()

    def invocation_metadata(self) -> object:
        return self._metadata


def inner_context(peer: str, metadata: object = (), timeout_ms: int = 0) -> Context:
    """A context for a call that gRPC does not know, with everything that a handler needs.

    `timeout_ms`: 0 for no timeout.
    """
    return cast("Context", _InnerContext(peer, metadata, timeout_ms))


class CallFilter(logging.Filter):
    """Adds `method` and `request_id` to log records created during a call."""

    def filter(self, record: logging.LogRecord) -> bool:
        call = CALL.get(None)
        if call is not None:
            record.method = call.method
            record.request_id = call.request_id
        return True
