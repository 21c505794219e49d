"""Settings of a server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from kvcq_client.pb.v1 import kvcq_pb2 as pb


class ServerSetting(NamedTuple):
    """A setting of the server. Values are as in JSON; None if not set."""

    name: str
    value: Any
    default: Any
    origin: str  # default, file, environment, flag, store or program
    where: str  # the file, variable or flag; "" for a default
    live: bool  # whether it can be changed while the server runs
    rocketmq: str  # the equivalent setting of a RocketMQ broker; "" for none
    meaning: str
    is_waiting: bool  # whether a restart will set it to `waiting`
    waiting: Any

    @classmethod
    def of(cls, message: pb.Setting) -> ServerSetting:
        return cls(
            message.name,
            _value(message.value),
            _value(message.default_value),
            message.origin,
            message.where,
            message.live,
            message.rocketmq_name,
            message.meaning,
            message.HasField("waiting_value"),
            _value(message.waiting_value),
        )


class SettingChange(NamedTuple):
    """A changed setting."""

    name: str
    before: Any
    after: Any


class ReloadedSettings(NamedTuple):
    """The result of a reload."""

    taken: list[SettingChange]
    waiting: list[SettingChange]  # changes that need a restart

    @classmethod
    def of(cls, message: pb.ReloadSettingsResponse) -> ReloadedSettings:
        return cls(*(list(map(_change, changes)) for changes in (message.taken, message.waiting)))


def _change(message: pb.SettingChange) -> SettingChange:
    return SettingChange(message.name, _value(message.before), _value(message.after))


def _value(text: str) -> Any:  # noqa: ANN401 - what JSON has
    return json.loads(text) if text else None
