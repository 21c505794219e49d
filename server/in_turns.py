"""Spreads many short calls over turns of the event loop, so that others run in between."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Calls in one turn. A woken pull takes 15 us before it waits for its turn to read; a cancelled one
#: takes 60 us to end.
AT_A_TIME = 64


def in_turns(calls: Iterator[Callable[[], object]]) -> None:
    """Make the calls, the first ones now. In the loop's thread; `calls` is iterated only as they
    are made."""
    made = 0
    for call in islice(calls, AT_A_TIME):
        call()
        made += 1
    if made == AT_A_TIME:
        asyncio.get_running_loop().call_soon(in_turns, calls)
