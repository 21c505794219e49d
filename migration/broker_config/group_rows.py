"""The settings of shared groups as rows of a broker's table of groups, in both directions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from migration.broker_config.attributes import (
    GROUP_ATTRIBUTES,
    group_attributes,
    lite_group_of,
)
from store.metadata import SharedGroup

if TYPE_CHECKING:
    from collections.abc import Mapping

_BACKOFF = "groupRetryPolicy"
_MOST_DELIVERIES = 1000
_MOST_BACKOFF = 16
_MOST_DELAY_MS = 30 * 24 * 3_600_000
#: For a group without a maximum of deliveries. A broker adds 1 to it.
_UNLIMITED_RETRIES = (1 << 31) - 2


def settings_of(row: Mapping[str, Any]) -> SharedGroup:
    """The settings of a shared group; invalid values become defaults."""
    lite = lite_group_of(row)
    in_order = lite is not None or bool(row.get("consumeMessageOrderly"))
    retries = row.get("retryMaxTimes")
    settings = SharedGroup(
        in_order=in_order,
        is_paused=row.get("consumeEnable") is False,
        backoff_ms=_backoff(row.get(_BACKOFF) or {}),
        lite=lite,
    ).settled
    if isinstance(retries, int) and retries >= 0 and (lite or not in_order):
        most = None if retries == _UNLIMITED_RETRIES else min(retries + 1, _MOST_DELIVERIES)
        settings = settings._replace(max_deliveries=most)
    return settings


def _backoff(policy: Mapping[str, Any]) -> tuple[int, ...]:
    """The backoff of a policy. Empty without one: then a broker waits for the invisible time of the
    pop."""
    times: list[Any] = []
    custom, growing = policy.get("customizedRetryPolicy"), policy.get("exponentialRetryPolicy")
    if policy.get("type") == "EXPONENTIAL" and growing:
        at = growing.get("initial") or 0
        for _ in range(_MOST_BACKOFF):
            times.append(min(at, growing.get("max") or at))
            at *= growing.get("multiplier") or 1
    elif custom:
        times = list(custom.get("next") or ())
    return tuple(min(int(each), _MOST_DELAY_MS) for each in times if each >= 0)[:_MOST_BACKOFF]


def row_of(name: str, settings: SharedGroup, row: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The broker's row with these settings. `row`: the row before; unchanged if it says the same.
    Fields that are missing in a row have the broker's defaults."""
    ours = _fields_of(name, settings)
    if row is None:
        return ours
    if ours == _fields_of(name, settings_of(row)):
        return row
    others = {
        name: value
        for name, value in (row.get("attributes") or {}).items()
        if name not in GROUP_ATTRIBUTES
    }
    kept = {name: value for name, value in row.items() if name != _BACKOFF}
    return {**kept, **ours, "attributes": {**others, **ours["attributes"]}}


def _fields_of(name: str, settings: SharedGroup) -> dict[str, Any]:
    """The settings that a broker has as well."""
    most = settings.max_deliveries
    fields: dict[str, Any] = {
        "attributes": {} if settings.lite is None else group_attributes(settings.lite),
        "consumeEnable": not settings.is_paused,
        "consumeMessageOrderly": settings.in_order,
        "groupName": name,
        "retryMaxTimes": _UNLIMITED_RETRIES if most is None else most - 1,
    }
    if settings.backoff_ms:
        backoff = {"next": list(settings.backoff_ms)}
        fields[_BACKOFF] = {"customizedRetryPolicy": backoff, "type": "CUSTOMIZED"}
    return fields
