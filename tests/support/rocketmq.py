"""Statuses in the answers of the service for RocketMQ's clients."""

from __future__ import annotations

import grpc

from server.rocketmq.pb import messaging_pb2 as pb
from server.rocketmq.pb import values_pb2 as v2

SERVICE = "apache.rocketmq.v2.MessagingService"

_CODES = {
    v2.UNAUTHORIZED: grpc.StatusCode.UNAUTHENTICATED,
    v2.FORBIDDEN: grpc.StatusCode.PERMISSION_DENIED,
    v2.INTERNAL_SERVER_ERROR: grpc.StatusCode.INTERNAL,
}


def status_in(response: bytes) -> v2.Status:
    """That of any answer: it is the same field in each."""
    return pb.HeartbeatResponse.FromString(response).status


def code_in(response: bytes) -> grpc.StatusCode:
    """What another service would have refused the call with; OK for what else there is."""
    return _CODES.get(status_in(response).code, grpc.StatusCode.OK)
