"""Tunes Python's garbage collector for a process with many long-lived small objects.

The store's bounded caches hold some hundred thousand objects, none of them in a cycle. With the
default thresholds, full collections walk all of them again and again, which stopped appends for
over 100 ms. The middle generation is collected in small steps, because a large one would stop an
append for as long.
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

    Cycles of an error's traceback are young, and are still found soon.
    """
    gc.collect()
    gc.freeze()  # modules and classes stay: no collection need look at them
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)
