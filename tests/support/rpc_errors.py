"""What a client sees of an error: its code, and the one ErrorInfo it carries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.rpc import error_details_pb2, status_pb2

if TYPE_CHECKING:
    import grpc


def error_info(error: grpc.aio.AioRpcError) -> error_details_pb2.ErrorInfo:
    """The ErrorInfo in the error's details; exactly one must be there."""
    trailers = dict(error.trailing_metadata() or ())
    status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
    assert status.code == error.code().value[0]
    assert status.message == error.details()
    [detail] = status.details
    info = error_details_pb2.ErrorInfo()
    assert detail.Unpack(info)
    assert info.domain == "kvcq"
    return info
