"""Runs unary methods over one stream."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import kvcq_pb2_grpc
from server.edge import request_id_of
from server.services.call_stream import CallStream

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from kvcq_client.pb.v1 import kvcq_pb2 as pb
    from server.edge import Context, Edge
    from server.metrics import CallMetrics
    from server.stage import Stage


class CallService(kvcq_pb2_grpc.CallServiceServicer):
    """Passes each call to the method that it names."""

    def __init__(
        self, stage: Stage, metrics: CallMetrics, edge: Edge, gone: Callable[[str], None]
    ) -> None:
        """`gone` is called with the name of a connection whose stream has ended."""
        self._gone = gone
        self._stage = stage
        self._metrics = metrics
        self._edge = edge

    async def Calls(
        self, requests: AsyncIterator[pb.CallsRequest], context: Context
    ) -> AsyncGenerator[bytes, None]:
        # A client sends nothing before it knows that it is here.
        await context.send_initial_metadata(())
        peer = context.peer()  # once the call has ended grpcio must not be asked
        edge = self._edge
        stream = CallStream(
            edge.shared,
            edge.gate,
            edge.memory,
            self._metrics,
            edge.busy_poll,
            context,
            request_id_of(context),
        )
        try:
            async with aclosing(stream.run(requests, self._stage)) as responses:
                async for response in responses:
                    yield response
        finally:
            self._gone(peer)
