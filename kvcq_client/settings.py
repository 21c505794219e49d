"""Settings of a server, as it tells them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from kvcq_client.pb.v1 import kvcq_pb2 as pb


class ServerSetting(NamedTuple):
    """One setting. Values are as JSON has them; None: not set."""

    name: str
    value: Any
    default: Any
    origin: str  # default, file, environment, flag, store or program
    where: str  # the file, the variable, the flag; empty for a default
    live: bool  # whether it may change while the server runs
    rocketmq: str  # the setting of a broker that says the same; empty: none
    meaning: str
    is_waiting: bool  # for a restart, with `waiting`
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
    """One setting that has another value now, or will have it."""

    name: str
    before: Any
    after: Any


class ReloadedSettings(NamedTuple):
    """What came of a reload."""

    taken: list[SettingChange]
    waiting: list[SettingChange]  # these need a restart

    @classmethod
    def of(cls, message: pb.ReloadSettingsResponse) -> ReloadedSettings:
        return cls(*(list(map(_change, changes)) for changes in (message.taken, message.waiting)))


def _change(message: pb.SettingChange) -> SettingChange:
    return SettingChange(message.name, _value(message.before), _value(message.after))


def _value(text: str) -> Any:  # noqa: ANN401 - what JSON has
    return json.loads(text) if text else None
