"""Edge.add with `refuse`: a service whose clients read refusals from answers, not from statuses."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.pb.v1 import kvcq_pb2_grpc
from server.access import Gatekeeper
from server.config import ServerConfig
from server.edge import Edge
from server.metrics import CallMetrics
from server.stage import Stage
from store.errors import InvalidArgumentError, UnknownTopicError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from server.wire import Refusal

SERVICE = pb.DESCRIPTOR.services_by_name["MessageService"]


class Service(kvcq_pb2_grpc.MessageServiceServicer):
    """Refuses all there is, a stream behind its first answer."""

    async def Put(self, request: pb.PutRequest, context: object) -> pb.PutResponse:
        raise UnknownTopicError("t")

    async def Subscribe(self, requests: Any, context: object) -> AsyncIterator[bytes]:  # noqa: ANN401
        async for _ in requests:
            yield b"first"
            raise InvalidArgumentError("credit_bytes", "is wrong")


def _answer_of(refusal: Refusal) -> bytes:
    return f"{refusal.code.name} {refusal.reason} {sorted(refusal.metadata)}".encode()


def _give() -> Service:
    return Service()


@asynccontextmanager
async def _served(
    servicer: Callable[[], object] = _give, gatekeeper: Gatekeeper | None = None
) -> AsyncIterator[grpc.aio.Channel]:
    edge = Edge(ServerConfig(), CallMetrics(10), gatekeeper)
    server = grpc.aio.server(options=(("grpc.max_receive_message_length", -1),))
    edge.add(server, SERVICE, Service, servicer, refuse=_answer_of)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield channel
    finally:
        await server.stop(None)
        edge.close()


async def _put(channel: grpc.aio.Channel, request: bytes = b"") -> bytes:
    method: Any = channel.unary_unary("/kvcq.v1.MessageService/Put", None, None)
    answer: bytes = await method(request)
    return answer


async def test_what_a_service_refuses_is_an_answer() -> None:
    async with _served() as channel:
        assert await _put(channel) == b"NOT_FOUND UNKNOWN_TOPIC ['requestId', 'topic']"
        stream: Any = channel.stream_stream("/kvcq.v1.MessageService/Subscribe", None, None)
        call = stream(iter([b""]))
        refused = b"INVALID_ARGUMENT INVALID_ARGUMENT ['field', 'requestId']"
        assert [one async for one in call] == [b"first", refused]
        assert await call.code() is grpc.StatusCode.OK


async def test_so_is_what_is_refused_before_the_service_is_asked() -> None:
    def closed() -> object:
        raise UnknownTopicError("never opened")

    async with _served(closed) as channel:
        assert (await _put(channel)).startswith(b"NOT_FOUND")
        assert (await _put(channel, b"\xff" * 20)).startswith(b"INVALID_ARGUMENT")
        assert (await _put(channel, bytes(6 << 20))).startswith(b"INVALID_ARGUMENT")
    stage = Stage()
    async with _served(gatekeeper=Gatekeeper(stage)) as channel:
        assert (await _put(channel)).startswith(b"UNAVAILABLE STARTING")
        stage.ready()
        assert (await _put(channel)).startswith(b"UNAUTHENTICATED")


async def test_two_services_that_share_a_stream_have_no_method_of_one_name() -> None:
    edge = Edge(ServerConfig(), CallMetrics(10))
    server = grpc.aio.server()
    edge.add(server, SERVICE, Service, _give)
    edge._sharing["Put"] = "another.Service"
    with pytest.raises(ValueError, match="Put is a method of two services"):
        edge.add(server, SERVICE, Service, _give)
    edge.add(server, SERVICE, Service, _give, shares_stream=False)
    edge.close()
