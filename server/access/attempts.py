"""Delays repeated attempts with wrong secrets, without affecting other callers."""

from __future__ import annotations

from collections import OrderedDict
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

#: After this many wrong secrets for one name from one address, that pair has to wait. Other names
#: do not, because behind a proxy all clients have one address.
MAX_FAILURES = 5
FAILURE_WAIT_S = 30.0
_REMEMBERED = 4096


class Attempts:
    """Counts failures by address and name. Owned by the event loop's thread."""

    def __init__(self, now_s: Callable[[], float] = monotonic) -> None:
        """`now_s`: a clock that never goes back."""
        self._now_s = now_s
        self._failures: OrderedDict[tuple[str, str], tuple[int, float]] = OrderedDict()

    def wait_s(self, address: str, name: str) -> float:
        """Seconds until they may try again; 0 if they may now."""
        count, last_s = self._failures.get((address, name), (0, 0.0))
        return max(0.0, last_s + FAILURE_WAIT_S - self._now_s()) if count >= MAX_FAILURES else 0.0

    def failed(self, address: str, name: str) -> None:
        """Record a wrong secret."""
        now = self._now_s()
        count, last_s = self._failures.pop((address, name), (0, now))
        count = 0 if now - last_s > FAILURE_WAIT_S else count
        self._failures[address, name] = count + 1, now
        while len(self._failures) > _REMEMBERED:
            self._failures.popitem(last=False)

    def succeeded(self, address: str, name: str) -> None:
        """Record a right secret."""
        self._failures.pop((address, name), None)
