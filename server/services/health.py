"""grpc.health.v1, with separate readiness and liveness.

| service of the request  | SERVING                                                   |
|-------------------------|-----------------------------------------------------------|
| "" (liveness)           | from the start until draining begins                      |
| "kvcq.ready"            | while calls are accepted: the store is open, not draining,|
|                         | and can write: no fsync failed, no file is missing,       |
|                         | the disk is not full and can be written                   |
| each service of kvcq.v1 | the same                                                  |

Watchers get NOT_SERVING when draining begins; then their streams end, so that they do not delay the
shutdown. Their number is limited; a rejected watcher may retry, or use `Check`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from grpc_health.v1 import health_pb2

from server.errors import TooManyCallsError, UnknownServiceError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable

    from server.edge import Context
    from server.stage import Stage

READY = "kvcq.ready"
#: Watching needs no user. Without a bound, a few connections could use up the streams of all users.
MAX_WATCHERS = 256

_Response = health_pb2.HealthCheckResponse


class HealthService:
    """Uses the stage, so it always agrees with what calls get."""

    def __init__(self, stage: Stage, services: Iterable[str]) -> None:
        self._stage = stage
        self._ready_names = frozenset((READY, *services))
        self._watchers = 0

    async def Check(
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> health_pb2.HealthCheckResponse:
        status = self._status(request.service)
        if status == _Response.SERVICE_UNKNOWN:
            raise UnknownServiceError(request.service)
        return _Response(status=status)

    async def List(
        self, request: health_pb2.HealthListRequest, context: Context
    ) -> health_pb2.HealthListResponse:
        return health_pb2.HealthListResponse(
            statuses={
                name: _Response(status=self._status(name)) for name in ("", *self._ready_names)
            }
        )

    async def Watch(
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> AsyncGenerator[health_pb2.HealthCheckResponse, None]:
        if self._watchers >= MAX_WATCHERS:
            raise TooManyCallsError("streams", "that watch health", MAX_WATCHERS)
        changed = asyncio.Event()
        stop_listening = self._stage.on_change(changed.set)
        self._watchers += 1
        try:
            last = None
            while True:
                changed.clear()
                status = self._status(request.service)
                if status != last:
                    yield _Response(status=status)
                    last = status
                if self._stage.is_draining:
                    return
                await changed.wait()
        finally:
            self._watchers -= 1
            stop_listening()

    def _status(self, service: str) -> int:
        if service == "":
            serving = not self._stage.is_draining
        elif service in self._ready_names:
            serving = self._stage.is_ready
        else:
            return int(_Response.SERVICE_UNKNOWN)
        return int(_Response.SERVING if serving else _Response.NOT_SERVING)
