"""Holds on the log: the lowest hold counts, and none is forgotten."""

from __future__ import annotations

from store.log.retention import LogHold, lowest


def test_the_lowest_hold_counts() -> None:
    holds: set[LogHold] = set()
    seen = [lowest(holds)]
    with LogHold(holds, 100) as first:
        with LogHold(holds, 50) as second:
            seen.append(lowest(holds))
            second.start = 200
            seen.append(lowest(holds))
            first.start = 300
            seen.append(lowest(holds))
        seen.append(lowest(holds))
    seen.append(lowest(holds))
    assert seen == [None, 50, 100, 200, 300, None]
