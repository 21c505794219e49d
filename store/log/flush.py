"""The services that make appended bytes durable: one for SYNC stores, one for ASYNC stores.

Both publish to the watermark `flushed`. A caller appends, calls `request(end)` if it wants an early
flush, and waits at the watermark with a deadline of its own (`wait_for` returns False).
"""

from __future__ import annotations

import logging
import threading
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

from store.base import Histogram, Lock
from store.errors import FlushError, StoreClosedError

if TYPE_CHECKING:
    from store.base import Clock
    from store.config import StoreConfig
    from store.log.watermark import Watermark

logger = logging.getLogger(__name__)


#: How often the gathering time may be taken again, since puts keep coming.
_GATHER_STEPS = 8
#: Puts for which a flush begins without gathering more, however many the last one answered.
ENOUGH_PUTS = 32
#: The same on a disk whose last flush took this long, in seconds. Two groups of callers that wait
#: for each other's flushes get half of what one group gets there.
ENOUGH_WHERE_SLOW = 64
SLOW_S = 0.002
#: If the last round had at least half as many bytes, a round does not wait for more puts: callers
#: with several large batches in flight lose more by waiting than by additional fsyncs.
ENOUGH_BYTES = 1 << 19
#: How far apart puts may come that share an fsync, seconds.
GATHER_S = 0.002
#: Limits of an interval flush, as in RocketMQ: fewer pages of 4 KiB wait for the next round, and
#: after this many seconds all are flushed, however few they are.
LEAST_PAGES = 4
THOROUGH_S = 10.0
#: Durations of a flush, seconds: from a disk with a cache of its own to one that hangs.
_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Flushable(Protocol):
    """Something that can be flushed up to where it is appended."""

    def flush(self, least_pages: int) -> int:
        """Flush if at least `least_pages` pages wait; with 0 if anything waits.

        Returns the physical offset below which everything is durable, whether or not it flushed.
        Raises OSError if fsync fails.
        """
        ...


class FlushService:
    """The common part of both services: thread, requests, rounds and shutdown.

    Thread: one, named, the only caller of `log.flush()` while it runs. Locks: only `_lock`, never
    held across a flush or a callback of the watermark. Failure: final. After a failed fsync the
    kernel may drop dirty pages, so a second one could report success for lost bytes. The watermark
    fails with FlushError, and no fsync is tried again, not even by `stop`.
    """

    def __init__(self, name: str, log: Flushable, flushed: Watermark) -> None:
        # Constant after construction.
        self._log = log
        self.flushed = flushed
        # A daemon, so that a program that ends by an error ends, without a clean close.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        # The lock is kept beside the condition: entering and leaving it are single calls into C, so
        # an interrupt of an appender cannot leave it held. A condition's own lock could stay held.
        self._lock = Lock()
        self._changed = threading.Condition(self._lock)
        # Guarded by _lock.
        self._requested = flushed.value
        self._stopping = False
        self._idle = False
        self._gathering = False
        self._puts = 0  # asked for since the last round began
        self._began_at = flushed.value  # the requested end when the last round began
        # With this many puts, or bytes, a round begins without gathering more.
        self._enough = 1
        self._enough_bytes = 0
        #: Seconds of each flush that had something to do. Owned by the thread; read anywhere.
        self.seconds = Histogram(_BOUNDS_S)
        self._last_s = 0.0  # duration of the last round; owned by the thread

    def start(self) -> None:
        self._thread.start()

    def reconfigure(self, config: StoreConfig) -> None:
        """Apply the flush settings that may change at run time. Thread-safe."""

    def request(self, end: int, puts: int = 1) -> None:
        """Ask for a flush of everything below `end`, which must be appended. Does not wait.

        `puts`: number of callers that this flush will answer.
        """
        with self._lock:
            if end > self._requested:
                self._requested = end
                self._puts += puts
            # A flushing thread looks at the requests again before it rests; a gathering one is
            # woken when it has enough. It is woken for earlier requests as well, because an
            # interrupt may have come before it was woken.
            if (
                self._idle
                and self._requested > self.flushed.value
                and (not self._gathering or self._has_enough())
            ):
                self._changed.notify()

    def _has_enough(self) -> bool:
        """Whether a round may begin without gathering more. Must hold `_lock`."""
        asked_bytes = self._requested - self._began_at
        return self._puts >= self._enough and asked_bytes >= self._enough_bytes

    def stop(self) -> None:
        """Flush everything appended, then end the thread. Repeatable.

        Waiters for more than that get StoreClosedError.
        """
        with self._lock:
            self._stopping = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()
        elif self.flushed.failure is None:
            self._finish()  # it was never started

    def run_once(self) -> None:
        """Run one round, without the wait before it. For the thread, and tests."""
        self._flush(self._least_pages())

    # --- on the thread ---------------------------------------------------------------------

    def _wait_for_round(self) -> bool:
        """Wait until a round is due. Returns False if the service is stopping."""
        raise NotImplementedError

    def _least_pages(self) -> int:
        """Number of waiting pages that the round requires."""
        raise NotImplementedError

    def _run(self) -> None:
        try:
            while self.flushed.failure is None and self._wait_for_round():
                self.run_once()
            self._finish()
        except Exception as error:
            logger.exception("%s ends: every waiter gets this error", self._thread.name)
            failure = FlushError(f"{self._thread.name} ended: {error!r}")
            failure.__cause__ = error
            self.flushed.fail(failure)

    def _finish(self) -> None:
        self._flush(0)
        self.flushed.fail(StoreClosedError(f"{self._thread.name} has stopped"))

    def _flush(self, least_pages: int) -> None:
        if self.flushed.failure is not None:
            return
        wanted = self._requested if least_pages == 0 else 0
        began_s = perf_counter()
        try:
            flushed = self._log.flush(least_pages)  # slow: no lock is held here
        except OSError as error:
            logger.critical(
                "fsync failed, nothing above %d is known to be durable: no more writes until the "
                "store is opened again: %s",
                self.flushed.value,
                error,
            )
            failure = FlushError(f"fsync failed, nothing above {self.flushed.value} is durable")
            failure.__cause__ = error
            self.flushed.fail(failure)
        else:
            if flushed > self.flushed.value:
                took_s = perf_counter() - began_s
                self.seconds.add(took_s)
                self._last_s = took_s
                logger.debug("flushed up to %d in %.1f ms", flushed, took_s * 1000)
            self.flushed.advance(flushed)
            # Otherwise the service would flush without end.
            assert flushed >= wanted, f"{wanted} was requested but never appended"


class GroupCommitService(FlushService):
    """Flushes at once: one flush answers all callers that wait for it.

    Requests that arrive during a flush share the next one. If the last round answered several puts,
    as many are expected again. The next round waits for them as long as each `gather_s` brings
    another one, a few times at most. Without that, on a fast disk, 64 callers cause about 20
    fsyncs. Large batches are gathered by bytes in the same way. A single caller never waits.
    Thread: "group-commit". Locks and failure: as in FlushService.
    """

    def __init__(self, log: Flushable, flushed: Watermark, gather_s: float = 0.0) -> None:
        super().__init__("group-commit", log, flushed)
        self._gather_s = gather_s

    def _wait_for_round(self) -> bool:
        with self._lock:
            self._idle = True
            self._changed.wait_for(lambda: self._stopping or self._requested > self.flushed.value)
            if self._gather_s > 0 and not self._has_enough():
                self._gather()
            self._idle = False
            most = ENOUGH_PUTS if self._last_s < SLOW_S else ENOUGH_WHERE_SLOW
            self._enough = min(self._puts, most)
            self._puts = 0
            size = self._requested - self._began_at
            self._enough_bytes = min(size, ENOUGH_BYTES) if size >= ENOUGH_BYTES // 2 else 0
            self._began_at = self._requested
            return not self._stopping

    def _gather(self) -> None:
        """Wait while puts keep arriving, until there are enough. Must hold `_lock`."""
        self._gathering = True
        for _ in range(_GATHER_STEPS):
            before = self._puts
            enough = self._changed.wait_for(
                lambda: self._stopping or self._has_enough(), self._gather_s
            )
            if enough or self._puts == before:
                break
        self._gathering = False

    def _least_pages(self) -> int:
        return 0


class IntervalFlushService(FlushService):
    """Flushes periodically: a power loss before the flush may lose acknowledged puts.

    Every `flush_interval_ms` it flushes if `LEAST_PAGES` pages wait; every `THOROUGH_S`, or on
    request, if anything waits. Thread: "interval-flush". Locks and failure: as in FlushService.
    """

    def __init__(
        self, log: Flushable, flushed: Watermark, config: StoreConfig, clock: Clock
    ) -> None:
        super().__init__("interval-flush", log, flushed)
        # Constant after construction.
        self._clock = clock
        # Guarded by _lock; read freely.
        self._config = config
        # Owned by the thread. The first round is a thorough one.
        self._thorough_s: float | None = None

    def _wait_for_round(self) -> bool:
        with self._lock:
            self._idle = True
            config = self._config
            self._changed.wait_for(
                lambda: (
                    self._stopping
                    or self._requested > self.flushed.value
                    or self._config is not config
                ),
                config.flush_interval_ms / 1000,
            )
            self._idle = False
            return not self._stopping

    def reconfigure(self, config: StoreConfig) -> None:
        with self._lock:  # ends a long rest
            self._config = config
            self._changed.notify_all()

    def _least_pages(self) -> int:
        now_s = self._clock.monotonic_s()
        due = self._thorough_s is None or now_s - self._thorough_s >= THOROUGH_S
        if due or self._requested > self.flushed.value:
            self._thorough_s = now_s
            return 0
        return LEAST_PAGES
