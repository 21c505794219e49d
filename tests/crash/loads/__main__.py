"""A process that puts a load on a store until it kills itself at a named point.

Run as `python -m tests.crash.loads LOAD ROOT MODE SEED POINT COUNT [IMAGE]`. For points see
tests/crash/putting_child.py. With IMAGE, what a loss of power would leave at that point is
written there before.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from store.config import FlushMode
from tests.crash.images import power_loss
from tests.crash.loads.killing import LOADS
from tests.crash.loads.load import tell
from tests.crash.putting_child import kill_at
from tests.support.fake_clock import FakeClock
from tests.support.stores import open_small


def main() -> None:
    name, root, mode, seed, point, count, *images = sys.argv[1:]
    clock, kind = FakeClock(), LOADS[name]
    with open_small(
        Path(root), clock, flush_mode=FlushMode(mode), reserved_hours=kind.reserved_hours
    ) as store:
        load = kind(store, clock, random.Random(seed))
        load.begin()
        tell("begun", [])

        def lose_power() -> None:
            for image in images:
                power_loss(store, Path(image), random.Random(f"{seed} power"))

        kill_at(point, int(count), lose_power)
        load.run()


if __name__ == "__main__":
    main()
