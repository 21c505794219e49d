"""How an error ends a call: the status for the caller, the log, the counters."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.access import audit_refusal
from server.edge.call_info import REQUEST_ID, Context
from server.errors import AccessError
from server.wire import INTERNAL_ROW, Refusal, refusal_of, rich_status

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from server.metrics import CallMetrics

logger = logging.getLogger(__name__)

_SERIOUS = ("DATA_LOSS", "FAILED_PRECONDITION", "INTERNAL")
#: Mistakes of the caller, which are not logged, even if another call must come first.
_CALLERS_OWN = (
    *("OUT_OF_SEQUENCE", "NUMBER_REUSED", "NUMBER_PASSED", "NUMBERS_UNKNOWN", "ILLEGAL_STEP"),
    *("OFFSET_BEHIND", "GROUP_KIND", "TRANSACTION_ENDED", "LITE_GROUP", "LITE_CLIENT_UNKNOWN"),
    "JOB_RUNNING",
    *("ACCESS_OFF", "LAST_ADMINISTRATOR", "SERVED_ELSEWHERE"),
    "SETTINGS_REFUSED",  # the code that reloads settings logs it, also after a signal
)


def ending(refusal: Refusal, context: Context) -> Coroutine[Any, Any, None]:
    """The coroutine that ends the call with the rejection's status; the caller awaits it.

    gRPC keeps the exception that ends the call, with all its frames, for as long as the call's
    objects live. So the caller's frame releases everything before it awaits this.
    """
    return context.abort(
        refusal.code,
        refusal.message,
        (
            ("grpc-status-details-bin", rich_status(refusal).SerializeToString()),
            (REQUEST_ID, refusal.metadata["requestId"]),
        ),
    )


def tell(metrics: CallMetrics, method: str, error: BaseException, request_id: str) -> Refusal:
    """The status for an error: counts it and, if the server is at fault, logs it.

    Removes the error's traceback, whose frames hold the request.
    """
    refusal = refusal_of(error, request_id)
    metrics.refused(method, refusal.reason, refusal.code.name)
    if isinstance(error, AccessError):
        audit_refusal(method, refusal.reason, refusal.message, request_id)
    if refusal.reason == INTERNAL_ROW.reason:
        logger.error("%s failed, request id %s", method, request_id, exc_info=error)
    elif refusal.code.name in _SERIOUS and refusal.reason not in _CALLERS_OWN:
        logger.error("%s: %s: %s, request id %s", method, refusal.reason, error, request_id)
    else:
        logger.debug("%s is refused with %s: %s", method, refusal.reason, error)
    drop_tracebacks(error)
    return refusal


def batch_error(
    metrics: CallMetrics, method: str, error: Exception, request_id: str
) -> pb.BatchError:
    """The error as a part of a response."""
    refusal = tell(metrics, method, error, request_id)
    return pb.BatchError(
        code=refusal.code_number,
        message=refusal.message,
        reason=refusal.reason,
        metadata=refusal.metadata,
    )


def drop_tracebacks(error: BaseException) -> None:
    """Drop the tracebacks of the error and of its causes.

    Frames in a traceback often refer to the error again. Such a cycle, with the request in it,
    stays in memory until the collector runs, which is rare.
    """
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        following.__traceback__ = None
        following = following.__cause__ or following.__context__
