"""Calls on the server itself."""

from __future__ import annotations

from kvcq_client.activity import Activity
from kvcq_client.arguments import (
    checked,
)
from kvcq_client.calls.call_group import CallGroup
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.settings import ReloadedSettings, ServerSetting
from kvcq_client.wire import from_wire


@checked()
class ServerCalls(CallGroup):
    """Reads the server's state and settings."""

    async def ping(self, *, timeout_s: float | None = None) -> None:
        """Return if the server responds, even while its store is not open. Needs no credentials."""
        await self._call(self._connection.health, b"", timeout_s)

    async def statistics(self, *, timeout_s: float | None = None) -> dict[str, float]:
        """The server's counters and levels by name; units are in the names."""
        answer = await self._call(self._admin.GetStatistics, pb.GetStatisticsRequest(), timeout_s)
        return dict(answer.values)

    async def server_version(self, *, timeout_s: float | None = None) -> str:
        """The version of the server."""
        answer = await self._call(self._admin.GetStatistics, pb.GetStatisticsRequest(), timeout_s)
        version: str = answer.version
        return version

    async def activity(self, *, timeout_s: float | None = None) -> Activity:
        """Traffic of topics, and lag of reader groups."""
        answer = await self._call(self._admin.GetActivity, pb.GetActivityRequest(), timeout_s)
        return from_wire(Activity, answer)

    async def settings(self, *, timeout_s: float | None = None) -> list[ServerSetting]:
        """All settings of the server: current values, and where they came from."""
        answer = await self._call(self._admin.GetSettings, pb.GetSettingsRequest(), timeout_s)
        return [ServerSetting.of(one) for one in answer.settings]

    async def reload_settings(self, *, timeout_s: float | None = None) -> ReloadedSettings:
        """Make the server reread its settings, and apply those that can change while it runs.

        Raises NotPossibleError with reason SETTINGS_REFUSED if they are invalid; the old ones stay.
        """
        answer = await self._call(self._admin.ReloadSettings, pb.ReloadSettingsRequest(), timeout_s)
        return ReloadedSettings.of(answer)
