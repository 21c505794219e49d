"""Status and statistics of a running server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.pb.v1 import kvcq_pb2_grpc
from server.errors import ServerDrainingError, ServerStartingError
from server.settings import KNOWN, toml_value
from server.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from server.edge import Context
    from server.metrics import CallMetrics, Surveyed
    from server.settings import Change, Reloaded, RunningSettings
    from server.stage import Stage


class AdminService(kvcq_pb2_grpc.AdminServiceServicer):
    """Also responds while the store is being opened, with its progress."""

    def __init__(
        self,
        stage: Stage,
        metrics: CallMetrics,
        levels: Callable[[], Awaitable[Mapping[str, float]]],
        activity: Callable[[], Awaitable[Surveyed]],
        settings: RunningSettings,
        reload: Callable[[], Awaitable[Reloaded]],
    ) -> None:
        """`levels` and `activity` describe what is served, while the store is open."""
        self._activity = activity
        self._settings = settings
        self._reload = reload
        self._stage = stage
        self._metrics = metrics
        self._levels = levels

    async def GetStatistics(
        self, request: pb.GetStatisticsRequest, context: Context
    ) -> pb.GetStatisticsResponse:
        return pb.GetStatisticsResponse(values=await self.numbers(), version=VERSION)

    async def numbers(self) -> dict[str, float]:
        """All statistics by name, as in GetStatistics."""
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
        return values

    async def GetActivity(
        self, request: pb.GetActivityRequest, context: Context
    ) -> pb.GetActivityResponse:
        self._stage.check_open()
        found = await self._activity()
        response = pb.GetActivityResponse(
            topics=[
                pb.TopicTraffic(topic=topic, **traffic._asdict())
                for topic, traffic in self._metrics.traffic().items()
            ],
            topic_count=found.topics,
            group_count=found.groups,
            groups_at_ms=found.lags_at_ms,
        )
        for group, lags in found.lags.items():
            for topic, lag in lags.items():
                response.groups.add(
                    group=group,
                    topic=topic,
                    messages=lag.messages,
                    since_ms=lag.since_ms,
                    shared=lag.is_shared,
                    in_flight=lag.in_flight,
                    waiting_again=lag.waiting_again,
                )
        for group, messages in found.dead_letters.items():
            response.dead_letters.add(group=group, messages=messages)
        return response

    async def GetSettings(
        self, request: pb.GetSettingsRequest, context: Context
    ) -> pb.GetSettingsResponse:
        settings = self._settings.settings
        waiting = {one.name: one.after for one in self._settings.waiting}
        response = pb.GetSettingsResponse()
        for name, value in settings.values().items():
            known, origin = KNOWN[name], settings.origin(name)
            response.settings.add(
                name=name,
                value=toml_value(value),
                default_value=toml_value(known.default),
                origin=origin.kind,
                where=origin.where,
                live=known.about.live,
                rocketmq_name=known.about.rocketmq,
                meaning=known.about.meaning,
                waiting_value=toml_value(waiting[name]) if name in waiting else None,
            )
        return response

    async def ReloadSettings(
        self, request: pb.ReloadSettingsRequest, context: Context
    ) -> pb.ReloadSettingsResponse:
        reloaded = await self._reload()
        return pb.ReloadSettingsResponse(
            taken=map(_change, reloaded.taken), waiting=map(_change, reloaded.waiting)
        )


def _change(change: Change) -> pb.SettingChange:
    return pb.SettingChange(
        name=change.name, before=toml_value(change.before), after=toml_value(change.after)
    )
