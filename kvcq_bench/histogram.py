"""Latencies in buckets of two per cent, in constant memory."""

from __future__ import annotations

import math
import threading

#: Ratio of neighbouring buckets, and the first bound in seconds.
_RATIO = 1.02
_FIRST_S = 1e-6
_LOG_RATIO = math.log(_RATIO)
_BUCKETS = 1200  # up to about 5 hours

PERCENTILES = (50.0, 90.0, 99.0, 99.9, 100.0)


class Histogram:
    """Counts by duration. Thread: any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = [0] * _BUCKETS
        self.count = 0
        self.total_s = 0.0

    def add(self, seconds: float, count: int = 1) -> None:
        """Count `count` events of that duration."""
        bucket = 0
        if seconds > _FIRST_S:
            bucket = min(_BUCKETS - 1, int(math.log(seconds / _FIRST_S) / _LOG_RATIO) + 1)
        with self._lock:
            self._counts[bucket] += count
            self.count += count
            self.total_s += seconds * count

    def percentile(self, share: float) -> float:
        """The duration in seconds that `share` per cent of events did not exceed, accurate to two
        per cent; 0 without events."""
        with self._lock:
            due = self.count * share / 100
            seen = 0
            for bucket, count in enumerate(self._counts):
                seen += count
                if count and seen >= due:
                    return _FIRST_S * _RATIO**bucket
        return 0.0

    def summary(self) -> dict[str, float]:
        """Count, mean and percentiles, in milliseconds."""
        if not self.count:
            return {"count": 0}
        found: dict[str, float] = {"count": self.count, "mean_ms": self.total_s / self.count * 1e3}
        for share in PERCENTILES:
            found[f"p{share:g}_ms"] = self.percentile(share) * 1e3
        return found
