"""Counters of the gRPC edge, by method. Read through AdminService.GetStatistics."""

from __future__ import annotations

from collections import Counter, defaultdict
from time import monotonic

#: Asking for the numbers must not change them.
_NOT_COUNTED = frozenset({"GetStatistics"})


class CallMetrics:
    """Calls, refusals and time, by method. Owned by the event loop's thread."""

    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._refusals: Counter[tuple[str, str]] = Counter()
        self._counts: Counter[str] = Counter()
        self._begun_s = monotonic()

    def ended(self, method: str, seconds: float) -> None:
        """A call of `method` ended, well or not."""
        if method not in _NOT_COUNTED:
            self._calls[method] += 1
            self._seconds[method] += seconds

    def refused(self, method: str, reason: str) -> None:
        """A call, or a batch in a stream, was answered with an error."""
        self._refusals[method, reason] += 1

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a counter of the server's own, such as `messages_put`."""
        self._counts[name] += amount

    def statistics(self) -> dict[str, float]:
        """All counters since the start of the process."""
        values: dict[str, float] = {"server.uptime_s": monotonic() - self._begun_s}
        for method, calls in self._calls.items():
            values[f"server.calls.{method}"] = calls
            values[f"server.seconds.{method}"] = self._seconds[method]
        for (method, reason), refusals in self._refusals.items():
            values[f"server.refusals.{method}.{reason}"] = refusals
        for name, amount in self._counts.items():
            values[f"server.{name}"] = amount
        return values
