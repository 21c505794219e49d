"""The first unit of a queue behind which something holds: by time, mostly."""

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
    """The first offset of low..high whose unit `holds`, and that unit; `high` when none does.

    What holds for a unit holds for all behind it. A hole is like the unit behind it: the unit is
    then that one. Raises what reading units raises.
    """
    last = _first_unit(queues, topic, queue_id, high - 1, high)[1] if low < high else None
    if last is not None and not holds(last):
        return high, None
    found, there = high, None
    while low < found:
        middle = (low + found) // 2
        at, unit = _first_unit(queues, topic, queue_id, middle, found)
        if unit is None or holds(unit):
            there = unit or there
            found = middle
        else:
            low = at + 1
    return found, there


def _first_unit(
    queues: ConsumeQueueStore, topic: str, queue_id: int, at: int, end: int
) -> tuple[int, CqUnit | None]:
    """The first unit that is there, from `at` on: offset and unit; None when there is none."""
    count = 1
    while at < end:
        found = queues.read_units(topic, queue_id, at, min(count, end - at))
        if found:
            return found[0]
        at += count
        count = _UNITS_A_READ
    return end, None
