"""What stands around every handler: errors become statuses, calls are counted and named.

Decorators and not gRPC interceptors: those build a handler anew for every call, these cost one
frame. A request id is taken from the caller's `x-request-id`, or made when it is needed.
Deadlines and cancellation need nothing here: gRPC cancels the handler's task.
"""

from __future__ import annotations

import functools
import logging
import re
import uuid
from contextlib import aclosing
from time import perf_counter
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

from server.status import INTERNAL_ROW, Refusal, refusal_of, rich_status

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

    import grpc

    from server.metrics import CallMetrics

    Context = grpc.aio.ServicerContext[Any, Any]

logger = logging.getLogger(__name__)

REQUEST_ID = "x-request-id"
_REQUEST_ID_FORM = re.compile(r"[\x21-\x7e]{1,128}")
_SERIOUS = ("DATA_LOSS", "FAILED_PRECONDITION", "INTERNAL")


class HasMetrics(Protocol):
    """What the decorators ask of a service."""

    metrics: CallMetrics


S = TypeVar("S", bound=HasMetrics)
Q = TypeVar("Q")
R = TypeVar("R")


def unary_call(
    handler: Callable[[S, Q, Context], Awaitable[R]],
) -> Callable[[S, Q, Context], Awaitable[R]]:
    """A handler of one request and one response."""
    method = _rpc_name(handler)

    @functools.wraps(handler)
    async def call(service: S, request: Q, context: Context) -> R:
        started = perf_counter()
        try:
            return await handler(service, request, context)
        except Exception as error:  # noqa: BLE001 - the edge: everything becomes a status
            await refuse(service.metrics, method, error, context)
        finally:
            service.metrics.ended(method, perf_counter() - started)

    return call


def stream_call(
    handler: Callable[[S, AsyncIterator[Q], Context], AsyncGenerator[R, None]],
) -> Callable[[S, AsyncIterator[Q], Context], AsyncGenerator[R, None]]:
    """A handler of two streams."""
    method = _rpc_name(handler)

    @functools.wraps(handler)
    async def call(
        service: S, requests: AsyncIterator[Q], context: Context
    ) -> AsyncGenerator[R, None]:
        started = perf_counter()
        try:
            async with aclosing(handler(service, requests, context)) as responses:
                async for response in responses:
                    yield response
        except Exception as error:  # noqa: BLE001 - the edge: everything becomes a status
            await refuse(service.metrics, method, error, context)
        finally:
            service.metrics.ended(method, perf_counter() - started)

    return call


async def refuse(metrics: CallMetrics, method: str, error: Exception, context: Context) -> NoReturn:
    """End the call with the error's status; an unexpected one is logged with its traceback."""
    refusal = tell(metrics, method, error, request_id_of(context))
    details = rich_status(refusal).SerializeToString()
    await context.abort(
        refusal.code,
        refusal.message,
        (
            ("grpc-status-details-bin", details),
            (REQUEST_ID, refusal.metadata["requestId"]),
        ),
    )
    raise AssertionError("abort returned")


def tell(metrics: CallMetrics, method: str, error: Exception, request_id: str) -> Refusal:
    """What to answer to the error, counted and, when it is the server's fault, logged."""
    refusal = refusal_of(error, request_id)
    metrics.refused(method, refusal.reason)
    if refusal.reason == INTERNAL_ROW.reason:
        logger.error("%s failed, request id %s", method, request_id, exc_info=error)
    elif refusal.code.name in _SERIOUS and refusal.reason != "OUT_OF_SEQUENCE":
        logger.error("%s: %s: %s, request id %s", method, refusal.reason, error, request_id)
    return refusal


def request_id_of(context: Context) -> str:
    """The caller's own id for this request, or a new one."""
    for name, value in context.invocation_metadata() or ():
        if name == REQUEST_ID and isinstance(value, str) and _REQUEST_ID_FORM.fullmatch(value):
            return value
    return uuid.uuid4().hex


def _rpc_name(handler: Callable[..., object]) -> str:
    return handler.__name__
