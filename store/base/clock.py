"""Time as a dependency, so that tests decide what time it is."""

import time
from typing import Protocol


class Clock(Protocol):
    """Wall-clock and monotonic time."""

    def now_ms(self) -> int:
        """Milliseconds since 1970. May jump, also backwards."""
        ...

    def monotonic_s(self) -> float:
        """Seconds from an arbitrary start. Never falls."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()
