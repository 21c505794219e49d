"""Waiting for what tells nobody of it."""

from __future__ import annotations

import asyncio
import time
from itertools import chain, repeat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

#: Much longer than anything here takes on a busy machine, and less than a test may.
LIMIT_S = 30.0
_QUICK_ROUNDS = 100
_PAUSE_S = 0.002


async def until(condition: Callable[[], object]) -> None:
    """Let the event loop go round until the condition is true. Raises TimeoutError.

    What the loop itself has to do is seen at once. Rounds for what other threads and processes do
    have pauses: without them this would take from those the processor that they wait for.
    """
    async with asyncio.timeout(LIMIT_S):
        for pause_s in chain(repeat(0.0, _QUICK_ROUNDS), repeat(_PAUSE_S)):
            if condition():
                return
            await asyncio.sleep(pause_s)


def wait_until(condition: Callable[[], object], limit_s: float = 2 * LIMIT_S) -> None:
    """Ask until the condition is true, of what another process does. Raises TimeoutError."""
    end_s = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end_s:
            raise TimeoutError(f"not within {limit_s:.0f} s")
        time.sleep(0.02)
