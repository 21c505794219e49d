"""What operators see of an open store: whether it accepts writes, its clock, its metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.errors import StoreFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from store.base import Counted
    from store.consume_queue import ConsumeQueueStore
    from store.log import StoreTimes
    from store.puts import AppendPath
    from store.reads import Reader
    from store.upkeep.services import Services

    Numbers = Mapping[str, float]

#: No watermark reaches it: a callback that waits for it gets the failure.
_NEVER = 1 << 63


class Health:
    """Reports the state of a store. Thread: any. Never blocks."""

    def __init__(
        self,
        appends: AppendPath,
        reader: Reader,
        queues: ConsumeQueueStore,
        times: StoreTimes,
        services: Services,
        others: Iterable[Callable[[], Numbers]],
    ) -> None:
        """`others`: functions that return metrics of other parts."""
        self._appends = appends
        self._log = appends.log
        self._reader = reader
        self._queues = queues
        self._times = times
        self._services = services
        self._others = tuple(others)

    def when_failed(self, callback: Callable[[], None]) -> None:
        """Call back, on a store thread, once or twice, when writes fail permanently.

        Not when the store is closed.
        """

        def ended(error: BaseException | None) -> None:
            if isinstance(error, StoreFailedError):
                callback()

        for watermark in (self._appends.flushed, self._appends.dispatched):
            watermark.call_when(_NEVER, ended)

    def why_not_writable(self) -> str | None:
        """Why puts are rejected, if the reason does not pass on its own in a moment: a failed
        fsync, a missing file, a full disk, or one that cannot be written. None if they are
        accepted.

        The disk is checked every `clean_interval_s`.
        """
        return self._appends.why_not_writable()

    def clock_warning(self) -> str | None:
        """What is wrong with the machine's clock, as a sentence; None if nothing is known."""
        return self._times.clock_warning(self._log.last_store_time_ms)

    @property
    def flush_seconds(self) -> Counted:
        """Durations of the log's flushes since it was opened."""
        return self._services.flush.seconds.read()

    def statistics(self) -> dict[str, float]:
        """See MessageStore.statistics."""
        retention, snapshots = self._services.retention, self._services.snapshots
        found: dict[str, float] = {
            **self._appends.statistics(),
            "store.dropped_segments": retention.dropped_segments,
            "store.retention_read_errors": retention.read_errors,
            "store.clock_jumped_s": self._times.jumped_ms() / 1000,
            "store.clock_behind_s": self._times.behind_ms(self._log.last_store_time_ms) / 1000,
            "store.time_falls": len(self._times.falls),
            "store.queue_repairs": self._services.repair.done,
            "store.filter_errors": self._reader.filter_errors,
            **{f"store.{name}": value for name, value in snapshots.statistics().items()},
            **{f"kvcq.{name}": value for name, value in self._queues.statistics().items()},
        }
        for numbers in self._others:
            found.update(numbers())
        return found
