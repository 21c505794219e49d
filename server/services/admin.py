"""What operators ask a running server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.pb.v1 import kvcq_pb2_grpc
from server.errors import ServerDrainingError, ServerStartingError
from server.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from server.metrics import CallMetrics
    from server.stage import Stage
    from server.wire import Context


class AdminService(kvcq_pb2_grpc.AdminServiceServicer):
    """Answers while the store is being opened as well: then with how far that is."""

    def __init__(
        self,
        stage: Stage,
        metrics: CallMetrics,
        levels: Callable[[], Awaitable[Mapping[str, float]]],
    ) -> None:
        """`levels` gives the numbers of what is served; it is asked while the store is open."""
        self._stage = stage
        self._metrics = metrics
        self._levels = levels

    async def GetStatistics(
        self, request: pb.GetStatisticsRequest, context: Context
    ) -> pb.GetStatisticsResponse:
        values = self._metrics.statistics()
        values["server.ready"] = float(self._stage.is_ready)
        try:
            self._stage.check_open()
        except ServerStartingError:
            values["server.opening_progress"] = self._stage.progress[1]
        except ServerDrainingError:
            values["server.draining"] = 1.0
        else:
            values.update(await self._levels())
        return pb.GetStatisticsResponse(values=values, version=VERSION)
