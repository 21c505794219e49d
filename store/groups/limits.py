"""Limits of calls and of the settings of shared groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.base import check_time_within, check_within
from store.errors import InvalidArgumentError
from store.format import check_topic

if TYPE_CHECKING:
    from store.metadata import SharedGroup

#: Most messages of one receive.
MOST_RECEIVED = 1024
#: Most handles of one call.
MOST_HANDLES = 1024
#: Longest lease, ms; receivers can renew it.
MOST_INVISIBLE_MS = 12 * 3_600_000
#: Longest delay before redelivery, ms.
MOST_DELAY_MS = 30 * 24 * 3_600_000
#: Most characters of an attempt id.
MOST_ATTEMPT_ID = 64
#: Most dead letters of one call.
MOST_LETTERS = 1000
#: Most queues described by one call.
MOST_DESCRIBED = 10_000
#: Most lite topics that a group's settings can allow each client.
MOST_LITE_QUOTA = 100_000
_MOST_DELIVERIES = 1000
_MOST_IN_FLIGHT = 10_000
_LEAST_KEEP_MS = 60_000
_MOST_KEEP_MS = 10 * 365 * 24 * 3_600_000
_MOST_BACKOFF = 16


def checked(settings: SharedGroup) -> SharedGroup:
    """The settings with defaults filled in. Raises InvalidArgumentError, naming the field."""
    settings = settings.settled
    if settings.max_deliveries is not None:
        check_within("max_deliveries", settings.max_deliveries, 1, _MOST_DELIVERIES)
    check_time_within("invisible_ms", settings.invisible_ms, 1, MOST_INVISIBLE_MS)
    check_within("most_in_flight", settings.most_in_flight, 1, _MOST_IN_FLIGHT)
    keep_ms = settings.dead_letters_keep_ms
    check_time_within("dead_letters_keep_ms", keep_ms, _LEAST_KEEP_MS, _MOST_KEEP_MS)
    check_within("backoff_ms", len(settings.backoff_ms), 0, _MOST_BACKOFF)
    for at, delay_ms in enumerate(settings.backoff_ms):
        check_time_within(f"backoff_ms[{at}]", delay_ms, 0, MOST_DELAY_MS)
    if settings.lite is not None:
        check_topic(settings.lite.parent, "lite.parent")
        check_within("lite.client_quota", settings.lite.client_quota, 1, MOST_LITE_QUOTA)
        if settings.lite.is_exclusive and settings.lite.is_wildcard:
            raise InvalidArgumentError(
                "lite.exclusive",
                "has no effect in a wildcard group, whose clients share all lite topics",
            )
    return settings


def check_fixed(before: SharedGroup, after: SharedGroup) -> None:
    """Raises InvalidArgumentError if a fixed setting changes."""
    for field in ("in_order", "from_latest"):
        if getattr(before, field) != getattr(after, field):
            raise InvalidArgumentError(
                field,
                f"is {getattr(before, field)} since the group was created, and cannot be changed: "
                "create another group, or delete this one first",
            )
    old, new = before.lite, after.lite
    if (old and old._replace(client_quota=0)) != (new and new._replace(client_quota=0)):
        raise InvalidArgumentError(
            "lite",
            f"is {old} since the group was created; only its client_quota can be changed: "
            "create another group, or delete this one first",
        )
