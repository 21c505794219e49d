"""The settings sent to clients: their own settings with the server's changes.

Clients obey them: limit of a body's size, time to wait for a message, retry policy. A group without
a backoff gets RocketMQ's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.rocketmq.pb import values_pb2 as v2
from server.rocketmq.times import duration_of
from store.lite import MOST_NAME
from store.metadata import LiteGroup, SharedGroup

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Most messages of one receive, and the longest wait for one.
MOST_RECEIVED = 32
LONGEST_POLL_MS = 20_000
#: Attempts of a producer, and the first and longest wait between them.
_SEND_ATTEMPTS = 3
_SEND_WAIT_MS = (10, 1000)
_SECOND, _MINUTE = 1000, 60_000
#: Delay before each redelivery: RocketMQ's delay levels.
_WAITS_MS = (
    *(each * _SECOND for each in (1, 5, 10, 30)),
    *(each * _MINUTE for each in (*range(1, 11), 20, 30, 60, 120)),
)
#: Lite topics of a client if its group has no setting. Sent to every consumer, as in RocketMQ.
_LITE_QUOTA = LiteGroup("").client_quota
_NO_LIMIT = (1 << 31) - 1


def of_producer(given: v2.Settings, max_body_bytes: int) -> v2.Settings:
    """The settings for a producer."""
    settings = _kept(given)
    settings.backoff_policy.CopyFrom(_exponential(_SEND_ATTEMPTS, *_SEND_WAIT_MS))
    settings.publishing.max_body_size = max_body_bytes
    settings.publishing.validate_message_type = True
    return settings


def of_consumer(given: v2.Settings, group: SharedGroup | None) -> v2.Settings:
    """The settings for a consumer. `group`: settings of its group; None if that does not exist."""
    group = (group or SharedGroup()).settled
    settings = _kept(given)
    attempts = _NO_LIMIT if group.max_deliveries is None else group.max_deliveries
    waits_ms = group.backoff_ms or _WAITS_MS
    if given.user_agent.language == v2.NODE_JS:
        # This client does not support the other policy: it retries at once, or never.
        policy = _exponential(attempts, max(_SECOND, waits_ms[0]), max(_SECOND, waits_ms[-1]))
    else:
        policy = _customized(attempts, waits_ms)
    settings.backoff_policy.CopyFrom(policy)
    subscription = settings.subscription
    subscription.fifo = group.in_order
    subscription.receive_batch_size = MOST_RECEIVED
    subscription.long_polling_timeout.CopyFrom(duration_of(LONGEST_POLL_MS))
    subscription.lite_subscription_quota = group.lite.client_quota if group.lite else _LITE_QUOTA
    subscription.max_lite_topic_size = MOST_NAME
    return settings


def _kept(given: v2.Settings) -> v2.Settings:
    settings = v2.Settings()
    settings.CopyFrom(given)
    settings.metric.on = False
    return settings


def _exponential(attempts: int, first_ms: int, most_ms: int) -> v2.RetryPolicy:
    backoff = v2.ExponentialBackoff(
        initial=duration_of(first_ms), max=duration_of(most_ms), multiplier=2
    )
    return v2.RetryPolicy(max_attempts=attempts, exponential_backoff=backoff)


def _customized(attempts: int, waits_ms: Iterable[int]) -> v2.RetryPolicy:
    backoff = v2.CustomizedBackoff(next=map(duration_of, waits_ms))
    return v2.RetryPolicy(max_attempts=attempts, customized_backoff=backoff)
