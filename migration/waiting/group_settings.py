"""Determines which groups pop, and so become shared groups. Converts RocketMQ's group settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from migration.waiting.names import RETRY_TOPICS
from store.metadata import SharedGroup

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_MOST_DELIVERIES = 1000
_MOST_BACKOFF = 16
_MOST_DELAY_MS = 30 * 24 * 3_600_000


def popping_groups(
    rows: Mapping[str, Mapping[str, Any]], seen: Collection[str], topics: Collection[str]
) -> frozenset[str]:
    """The groups in `rows` whose members pop: the revive log has their receives (`seen`), or they
    have a retry topic of the kind that only popping groups have, or they are in order.

    No setting shows it, so groups that have not popped for long are missed.
    """
    found = {group for group in rows if group in seen or rows[group].get("consumeMessageOrderly")}
    names = set(topics)
    for name in names:
        if not name.startswith(RETRY_TOPICS):
            continue
        rest = name[len(RETRY_TOPICS) :]
        for at, letter in enumerate(rest):
            if letter in "_+" and rest[:at] in rows and rest[at + 1 :] in names:
                found.add(rest[:at])
    return frozenset(found)


def settings_of(row: Mapping[str, Any]) -> SharedGroup:
    """The settings of a shared group; invalid values become defaults."""
    in_order = bool(row.get("consumeMessageOrderly"))
    retries = row.get("retryMaxTimes")
    settings = SharedGroup(
        in_order=in_order,
        is_paused=row.get("consumeEnable") is False,
        backoff_ms=_backoff(row.get("groupRetryPolicy") or {}),
    ).settled
    if isinstance(retries, int) and retries >= 0 and not in_order:
        settings = settings._replace(max_deliveries=min(retries + 1, _MOST_DELIVERIES))
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
