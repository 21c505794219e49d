"""Messages that were delivered as often as their group allows."""

from __future__ import annotations

from typing import NamedTuple


class DeadLetter(NamedTuple):
    """A message that was not acknowledged in any of its deliveries."""

    offset: int  # identifies it in the group, also after it is moved
    place: int  # offset in queue 0 of `%DLQ%` and the group's name at which it can be pulled now
    topic: str  # topic or light queue that it came from; "" if unknown
    queue_id: int
    queue_offset: int | None
    message_id: str  # before it became a dead letter; "" if unknown
    deliveries: int
    time_ms: int  # since when it is a dead letter; ms since 1970
