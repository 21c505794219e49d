"""What a client sees of an error: its code, and the one ErrorInfo it carries."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from google.rpc import error_details_pb2, status_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

    import grpc


def trailers_of(error: grpc.aio.AioRpcError) -> dict[str, str | bytes]:
    """The metadata behind the error."""
    # Pairs at run time; the stubs have a class of their own for them.
    return dict(cast("Iterable[tuple[str, str | bytes]]", error.trailing_metadata() or ()))


def error_info(error: grpc.aio.AioRpcError) -> error_details_pb2.ErrorInfo:
    """The ErrorInfo in the error's details; exactly one must be there."""
    details = trailers_of(error)["grpc-status-details-bin"]
    assert isinstance(details, bytes)
    status = status_pb2.Status.FromString(details)
    assert status.code == error.code().value[0]
    assert status.message == error.details()
    [detail] = status.details
    info = error_details_pb2.ErrorInfo()
    assert detail.Unpack(info)
    assert info.domain == "kvcq"
    return info
