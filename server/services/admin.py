"""What operators ask a running server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.pb.v1 import kvcq_pb2_grpc
from server.errors import ServerDrainingError, ServerStartingError
from server.version import VERSION

if TYPE_CHECKING:
    from server.metrics import CallMetrics
    from server.stage import Stage
    from server.wire.call_errors import Context


class AdminService(kvcq_pb2_grpc.AdminServiceServicer):
    """Answers while the store is being opened as well: then with how far that is."""

    def __init__(self, stage: Stage, metrics: CallMetrics) -> None:
        self._stage = stage
        self.metrics = metrics

    async def GetStatistics(
        self, request: pb.GetStatisticsRequest, context: Context
    ) -> pb.GetStatisticsResponse:
        values = self.metrics.statistics()
        values["server.ready"] = float(self._stage.is_ready)
        try:
            parts = self._stage.parts
        except ServerStartingError:
            values["server.opening_progress"] = self._stage.progress[1]
        except ServerDrainingError:
            values["server.draining"] = 1.0
        else:
            values["server.max_receive_bytes"] = parts.config.max_receive_bytes
            values["server.producers"] = parts.sessions.producer_count
            values["server.watched_queues"] = parts.growth.watched_queues
            values.update(await parts.workers.run(parts.store.statistics))
        return pb.GetStatisticsResponse(values=values, version=VERSION)
