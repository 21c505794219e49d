"""Finds the first unit of a queue that satisfies a condition, mostly by time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.consume_queue import ConsumeQueueStore, CqUnit

_UNITS_A_READ = 64


def first_where(
    queues: ConsumeQueueStore,
    topic: str,
    queue_id: int,
    low: int,
    high: int,
    holds: Callable[[CqUnit], bool],
) -> tuple[int, CqUnit | None]:
    """The first offset of low..high whose unit satisfies `holds`, and that unit; `high` if none
    does.

    If a unit satisfies it, all later ones must as well. A gap counts like the unit after it, which
    is then returned. Raises what reading units raises.
    """
    last = first_unit(queues, topic, queue_id, high - 1, high)[1] if low < high else None
    if last is not None and not holds(last):
        return high, None
    found, there = high, None
    while low < found:
        middle = (low + found) // 2
        at, unit = first_unit(queues, topic, queue_id, middle, found)
        if unit is None or holds(unit):
            there = unit or there
            found = middle
        else:
            low = at + 1
    return found, there


def first_unit(
    queues: ConsumeQueueStore, topic: str, queue_id: int, at: int, end: int
) -> tuple[int, CqUnit | None]:
    """Offset and unit of the first existing unit from `at` on; None if there is none."""
    count = 1
    while at < end:
        found = queues.read_units(topic, queue_id, at, min(count, end - at))
        if found:
            return found[0]
        at += count
        count = _UNITS_A_READ
    return end, None
