"""How many lines of the log or the audit one caller may cause: each costs disk, and anyone may be
refused as often as they like."""

from __future__ import annotations

from collections import OrderedDict
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

#: Callers that are remembered, the latest ones.
REMEMBERED = 1024


class LineLimit:
    """Owned by one thread."""

    def __init__(
        self, at_once: int, now_s: Callable[[], float] = monotonic, every_s: float = 1.0
    ) -> None:
        """`at_once`: lines of one caller that need not wait; of the others one goes `every_s`."""
        self._at_once = at_once
        self._now_s = now_s
        self._every_s = every_s
        # Caller to [lines it may cause now, as of when, lines left out]; least recently used first.
        self._callers: OrderedDict[tuple[str, ...], list[float]] = OrderedDict()

    def take(self, caller: tuple[str, ...]) -> int | None:
        """How many lines like it were left out since the last one; None: so is this one."""
        now_s = self._now_s()
        entry = self._callers.pop(caller, None) or [self._at_once, now_s, 0]
        self._callers[caller] = entry
        if len(self._callers) > REMEMBERED:
            self._callers.popitem(last=False)
        entry[0] = min(self._at_once, entry[0] + (now_s - entry[1]) / self._every_s)
        entry[1] = now_s
        if entry[0] < 1:
            entry[2] += 1
            return None
        entry[0] -= 1
        left_out, entry[2] = int(entry[2]), 0
        return left_out
