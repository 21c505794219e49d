"""A server of RocketMQ's protocol that stores nothing: what the protocol itself takes, on the same
gRPC: `python -m tests.peers.echo PORT`. Each send is answered, each receive has 32 messages."""

from __future__ import annotations

import hashlib
import os
import sys
from typing import TYPE_CHECKING, Any

import grpc

from server.rocketmq import SERVICE
from server.rocketmq.pb import messaging_pb2 as pb
from server.rocketmq.pb import values_pb2 as v2
from tests.benchmarks.timing import BODY_BYTES, new_loop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_OK = v2.Status(code=v2.OK, message="OK")
_EACH = 32


def _messages() -> list[bytes]:
    body = os.urandom(BODY_BYTES)
    system = v2.SystemProperties(
        message_id="01" * 17,
        body_digest=v2.Digest(
            type=v2.MD5, checksum=hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
        ),
        body_encoding=v2.IDENTITY,
        message_type=v2.NORMAL,
        receipt_handle="h" * 80,
        delivery_attempt=1,
    )
    message = v2.Message(topic=v2.Resource(name="each"), body=body, system_properties=system)
    parts = [
        pb.ReceiveMessageResponse(status=_OK),
        *[pb.ReceiveMessageResponse(message=message)] * _EACH,
        pb.ReceiveMessageResponse(delivery_timestamp={"seconds": 1}),
    ]
    return [each.SerializeToString() for each in parts]


async def _serve(port: int) -> None:
    received = _messages()
    entry = pb.SendResultEntry(status=_OK, message_id="01" * 17, offset=1)
    sent = pb.SendMessageResponse(status=_OK, entries=[entry]).SerializeToString()
    acknowledged = pb.AckMessageResponse(status=_OK, entries=[pb.AckMessageResultEntry(status=_OK)])
    fixed = {
        "Heartbeat": pb.HeartbeatResponse(status=_OK).SerializeToString(),
        "NotifyClientTermination": pb.HeartbeatResponse(status=_OK).SerializeToString(),
        "SendMessage": sent,
        "AckMessage": acknowledged.SerializeToString(),
    }

    def always(answer: bytes) -> Any:  # noqa: ANN401 - a handler
        async def answered(_request: bytes, _context: object) -> bytes:
            return answer

        return grpc.unary_unary_rpc_method_handler(answered)

    async def route(request: bytes, _context: object) -> bytes:
        asked = pb.QueryRouteRequest.FromString(request)
        queue = v2.MessageQueue(
            topic=asked.topic,
            permission=v2.READ_WRITE,
            broker=v2.Broker(name="echo", endpoints=asked.endpoints),
            accept_message_types=[v2.NORMAL],
        )
        return pb.QueryRouteResponse(status=_OK, message_queues=[queue]).SerializeToString()

    async def receive(_request: bytes, _context: object) -> AsyncIterator[bytes]:
        for part in received:
            yield part

    async def telemetry(requests: Any, _context: object) -> AsyncIterator[bytes]:  # noqa: ANN401
        async for request in requests:
            settings = pb.TelemetryCommand.FromString(request).settings
            settings.publishing.max_body_size = 4 << 20
            settings.backoff_policy.max_attempts = 3
            settings.backoff_policy.exponential_backoff.multiplier = 2
            yield pb.TelemetryCommand(status=_OK, settings=settings).SerializeToString()

    handlers = {name: always(answer) for name, answer in fixed.items()} | {
        "QueryRoute": grpc.unary_unary_rpc_method_handler(route),
        "ReceiveMessage": grpc.unary_stream_rpc_method_handler(receive),
        "Telemetry": grpc.stream_stream_rpc_method_handler(telemetry),
    }
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(SERVICE.full_name, handlers),)
    )
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    new_loop().run_until_complete(_serve(int(sys.argv[1])))
