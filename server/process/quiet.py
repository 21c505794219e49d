"""Waits until nothing more arrives."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

#: Pause in which the loop handles events, and the longest total time.
_PAUSE_S = 0.01
_MOST_S = 1.0


async def until_quiet(count: Callable[[], int]) -> None:
    """Returns once `count` stays the same while the loop processes pending events; after a second
    at the latest.

    A pause alone is not enough for a loop that was blocked meanwhile.
    """
    loop = asyncio.get_running_loop()
    end_s = loop.time() + _MOST_S
    seen, now = None, count()
    while seen != now and loop.time() < end_s:
        await asyncio.sleep(_PAUSE_S)
        seen, now = now, count()
