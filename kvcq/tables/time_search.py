"""Search by time in one queue: which unit was stored at, before or after a moment.

Times 100, 100, 100, 300, 300 at offsets 0..4 (max 5):

| time | LOWER | UPPER |
|-----:|------:|------:|
|   50 |     0 |     0 |
|  100 |     0 |     2 |
|  200 |     3 |     2 |
|  300 |     3 |     4 |
|  400 |     5 |     4 |

LOWER is the first unit at or after the time, UPPER the last at or before it; both stay inside
min..max. An empty queue answers its min. Source: RocketMQ 5, ConsumeQueue.getOffsetInQueueByTime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.consume_queue import Boundary

if TYPE_CHECKING:
    from collections.abc import Callable


def search_time(
    min_offset: int,
    max_offset: int,
    time_ms: int,
    boundary: Boundary,
    store_time_ms: Callable[[int], int],
) -> int:
    """The offset of the table above; `store_time_ms` gives the time of the unit at an offset.

    Store times never fall along a queue. Raises what `store_time_ms` raises.
    """
    low, high = min_offset, max_offset
    while low < high:
        middle = (low + high) // 2
        time_there = store_time_ms(middle)
        if time_there < time_ms or (boundary is Boundary.UPPER and time_there == time_ms):
            low = middle + 1
        else:
            high = middle
    if boundary is Boundary.LOWER:
        return low
    return max(low - 1, min_offset)
