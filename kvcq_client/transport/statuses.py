"""Statuses of the server as errors of the client."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import grpc
from google.rpc import error_details_pb2, status_pb2

from kvcq_client.errors import (
    AlreadyExistsError,
    BusyError,
    DataLossError,
    DeadlineError,
    InvalidArgumentError,
    KvcqError,
    NotFoundError,
    NotPossibleError,
    NumberPassedError,
    NumberReusedError,
    OffsetBehindError,
    OffsetOutOfRangeError,
    PermissionDeniedError,
    RecreatedError,
    ResourceExhaustedError,
    ServerError,
    UnauthenticatedError,
    UnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kvcq_client.pb.v1 import kvcq_pb2 as pb

_DETAILS = "grpc-status-details-bin"
_BY_CODE: dict[str, type[KvcqError]] = {
    kind.code: kind
    for kind in (
        InvalidArgumentError,
        NotFoundError,
        AlreadyExistsError,
        OffsetOutOfRangeError,
        ResourceExhaustedError,
        NotPossibleError,
        UnavailableError,
        DeadlineError,
        UnauthenticatedError,
        PermissionDeniedError,
        DataLossError,
        ServerError,
    )
}
_BY_REASON: dict[str, type[KvcqError]] = {
    "NUMBER_REUSED": NumberReusedError,
    "NUMBER_PASSED": NumberPassedError,
    "OFFSET_BEHIND": OffsetBehindError,
    "QUEUE_RECREATED": RecreatedError,
    **dict.fromkeys(("TOO_MANY_CALLS", "REQUEST_LATE", "MEMORY_FULL", "USER_LIMIT"), BusyError),
}
#: The server gives a reason with each of its errors. Without one, the transport failed: gRPC
#: reports INTERNAL for a connection lost during a write, and cancels calls that arrive while its
#: server ends.
_OF_TRANSPORT = (grpc.StatusCode.INTERNAL, grpc.StatusCode.CANCELLED)
_NAME_BY_NUMBER: dict[int, str] = {code.value[0]: code.name for code in grpc.StatusCode}


def is_retried(error: KvcqError) -> bool:
    """Whether the client retries after this error."""
    return isinstance(error, UnavailableError | BusyError)


def make_error(code: str, message: str, reason: str, metadata: Mapping[str, str]) -> KvcqError:
    """The error for a status; ServerError for codes without a class of their own."""
    kind = _BY_REASON.get(reason) or _BY_CODE.get(code, ServerError)
    return kind(message, reason, metadata)


def from_rpc(error: grpc.aio.AioRpcError) -> KvcqError:
    """The error of a failed call, with the server's ErrorInfo if there is one."""
    reason, metadata = "", dict[str, str]()
    # grpc's stubs do not declare the metadata as pairs.
    trailing = cast("Iterable[tuple[str, str | bytes]]", error.trailing_metadata() or ())
    for name, value in trailing:
        if name == _DETAILS and isinstance(value, bytes):
            status = status_pb2.Status.FromString(value)
            for detail in status.details:
                info = error_details_pb2.ErrorInfo()
                if detail.Unpack(info):
                    reason, metadata = info.reason, dict(info.metadata)
    message = error.details() or error.code().name
    if error.code() in _OF_TRANSPORT and not reason:
        return UnavailableError(message)
    return make_error(error.code().name, message, reason, metadata)


def from_shared_stream(error: grpc.aio.AioRpcError) -> KvcqError:
    """The error for all calls on a stream that ended; UnavailableError if the server gave no
    reason."""
    found = from_rpc(error)
    return found if found.reason else UnavailableError(str(found))


def from_batch_error(error: pb.BatchError) -> KvcqError:
    """The error in a response of a stream."""
    code = _NAME_BY_NUMBER.get(error.code, "UNKNOWN")
    return make_error(code, error.message, error.reason, dict(error.metadata))
