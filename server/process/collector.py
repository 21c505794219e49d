"""Python's garbage collector, set for a process that keeps many small objects for long.

The store's bounded caches hold some hundred thousand objects, none of them in a cycle. With the
default thresholds a full collection walks all of them again and again: creating 400,000 topics,
appends stopped for up to 150 ms, and took 18 us a topic instead of 11 (2 cores, 2026-11-20). The
middle generation is ingested small steps: it held a million objects after 50 times 20,000, and one
append took 60 to 120 ms of processor time; after four times 20,000, a pass takes 22 to 28, and
after four times 5,000 it takes 5 to 7 (2 cores, 2026-11-23).
"""

from __future__ import annotations

import gc

# Allocations between two collections of the youngest objects; how many of those before the middle
# generation is taken as well; and how many of these before everything is.
_YOUNG = 5_000
_MIDDLE = 4
_OLD = 5_000


def calm_collector() -> None:
    """Collect young objects in larger steps, old ones hardly ever. For a process's own `main`.

    What an error's traceback keeps in a cycle is young, and is still found soon.
    """
    gc.collect()
    gc.freeze()  # modules and classes stay: no collection need look at them
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)
