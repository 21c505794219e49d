"""A clock that stands still until a test moves it."""


class FakeClock:
    """Wall-clock and monotonic time, moved apart or together.

    It begins in the future: RocksDB's expiry filter goes by the machine's own clock, and drops
    nothing alive as long as that one is behind.
    """

    def __init__(self, now_ms: int = 2_000_000_000_000) -> None:
        self.wall_ms = now_ms
        self.monotonic = 1000.0

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic_s(self) -> float:
        return self.monotonic

    def advance(self, seconds: float) -> None:
        """Time passes, on both."""
        self.wall_ms += round(seconds * 1000)
        self.monotonic += seconds

    def jump(self, seconds: float) -> None:
        """Somebody sets the wall clock."""
        self.wall_ms += round(seconds * 1000)
