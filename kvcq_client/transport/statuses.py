"""What the server answers when it refuses, as an error of the client."""

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
#: Every refusal of the server has a reason. Without one it was the transport: gRPC calls a
#: connection INTERNAL that was lost in the middle of a write, and cancels calls that come in while
#: its server ends.
_OF_TRANSPORT = (grpc.StatusCode.INTERNAL, grpc.StatusCode.CANCELLED)
_NAME_BY_NUMBER: dict[int, str] = {code.value[0]: code.name for code in grpc.StatusCode}


def may_pass(error: KvcqError) -> bool:
    """Whether the client sends the same request again, a little later."""
    return isinstance(error, UnavailableError | BusyError)


def make_error(code: str, message: str, reason: str, metadata: Mapping[str, str]) -> KvcqError:
    """The error for a status; a code that has no class of its own is a ServerError."""
    kind = _BY_REASON.get(reason) or _BY_CODE.get(code, ServerError)
    return kind(message, reason, metadata)


def from_rpc(error: grpc.aio.AioRpcError) -> KvcqError:
    """The error that a call ended with, with the server's ErrorInfo when it sent one."""
    reason, metadata = "", dict[str, str]()
    # The stubs of grpc do not say that its metadata are pairs.
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
    """The error of all calls on a stream that ended. Without a reason it was the transport,
    whatever gRPC calls it."""
    told = from_rpc(error)
    return told if told.reason else UnavailableError(str(told))


def from_batch_error(error: pb.BatchError) -> KvcqError:
    """The error that stands in a response of a stream."""
    code = _NAME_BY_NUMBER.get(error.code, "UNKNOWN")
    return make_error(code, error.message, error.reason, dict(error.metadata))
