"""Tasks that are not to be begun before a time.

Their messages carry the time. Whoever receives one too early gives it back with the delay that is
left, so it waits in the store and not in the memory of a worker. That costs one delivery of those
that the group allows.
"""

from __future__ import annotations

from time import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvcq_client.format import StoredMessage
    from kvcq_client.receiving import Delivery

_PROPERTY = "NOT_BEFORE_MS"
#: Longest delay of the server; what is later is given back again.
_MOST_S = 30 * 86_400.0


def not_before(delay_s: float, now_s: float | None = None) -> dict[str, str]:
    """Properties of a message that is to be begun after `delay_s`; none without a delay."""
    if delay_s <= 0:
        return {}
    return {_PROPERTY: str(round(((time() if now_s is None else now_s) + delay_s) * 1000))}


def is_given_back(delivery: Delivery, now_s: float | None = None) -> bool:
    """Give the delivery back if it came before its time."""
    left_s = _left_s(delivery.message, time() if now_s is None else now_s)
    if left_s <= 0:
        return False
    delivery.give_back(min(left_s, _MOST_S), not_begun=True)
    return True


def _left_s(message: StoredMessage, now_s: float) -> float:
    text = message.properties.get(_PROPERTY, "")
    return int(text) / 1000 - now_s if text.isascii() and text.isdigit() else 0.0
