"""store/log/holds.py: the lowest hold counts, and none is forgotten."""

from __future__ import annotations

from store.log.holds import LogHolds


def test_the_lowest_hold_counts() -> None:
    holds = LogHolds()
    seen = [holds.lowest]
    with holds.add(100) as first:
        with holds.add(50) as second:
            seen.append(holds.lowest)
            second.move(200)
            seen.append(holds.lowest)
            first.move(300)
            seen.append(holds.lowest)
        seen.append(holds.lowest)
    seen.append(holds.lowest)
    assert seen == [None, 50, 100, 200, 300, None]
