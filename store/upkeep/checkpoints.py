"""Tracks what is durable, and writes the checkpoint files."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, NamedTuple

from store.base import Lock
from store.errors import DiskFullError
from store.format import Checkpoint, write_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    from store.base import Clock
    from store.config import StoreConfig
    from store.consume_queue import ConsumeQueueStore
    from store.puts import AppendPath
    from store.state import StateStore
    from store.store_dir import StoreDir

_FULL = (errno.ENOSPC, errno.EDQUOT)


class DurableState(NamedTuple):
    """What opening found to be durable."""

    queues_end: int  # physical offset below which the queues are
    queue_time_ms: int  # store time up to which they are
    last_record_offset: int  # where the log's last record begins; 0: unknown


class Checkpoints:
    """Flushes the log, then the data derived from it, and records both.

    Thread: any. Locks: `lock`, held for a whole round; taken before the append lock.
    """

    def __init__(
        self,
        config: StoreConfig,
        clock: Clock,
        directory: StoreDir,
        appends: AppendPath,
        queues: ConsumeQueueStore,
        state: StateStore,
        found: DurableState,
    ) -> None:
        # Constant after construction.
        self.lock = Lock()
        self._config = config
        self._clock = clock
        self._directory = directory
        self._appends = appends
        self._log = appends.log
        self._queues = queues
        self._state = state
        self._last_record_offset = found.last_record_offset
        # Guarded by lock; read freely.
        self._queues_end = found.queues_end
        self._queue_time_ms = found.queue_time_ms
        self._queues_flushed_s = clock.monotonic_s()
        self._written: Checkpoint | None = None
        self._written_before: Checkpoint | None = None  # as the previous one

    def reconfigure(self, config: StoreConfig) -> None:
        """Apply new settings. Thread-safe."""
        self._config = config

    @property
    def queues_end(self) -> int:
        """Physical offset below which queues and index are durable; a crash loses later rows."""
        return self._queues_end

    def flush(self) -> None:
        """Make log and queues durable up to what was appended before. Must hold `lock`.

        Raises FlushError, DiskFullError and what the queues raise.
        """
        # The log first: data ahead of it is useless after a power loss.
        self._appends.flush()
        dispatched = self._appends.dispatched.value
        mark = self._log.flushed_mark
        self._state.advance(dispatched)
        self._state.flush()
        self._queues.flush()
        self.queues_flushed(dispatched, mark)
        self._queues_flushed_s = self._clock.monotonic_s()
        self.write_both()

    def flush_if_due(self) -> None:
        """Flush if the replay after a crash would become too long, by time or bytes. Must hold
        `lock`."""
        config = self._config
        waiting = self._appends.dispatched.value - self._queues_end
        due = self._clock.monotonic_s() - self._queues_flushed_s >= config.kv_flush_interval_s
        if waiting > 0 and (due or waiting >= config.kv_flush_bytes):
            self.flush()

    def queues_flushed(self, dispatched: int, mark: tuple[int, int]) -> None:
        """Queues are durable up to `dispatched`; `mark` is from an earlier flush of the log."""
        self._queues_end = dispatched
        if dispatched >= mark[0]:
            self._queue_time_ms = max(self._queue_time_ms, mark[1])

    def write(self) -> None:
        """Write what is flushed now to the checkpoint file, durably."""
        # Both of one flush: its end, and the time of the record before it.
        flushed, time_ms = self._log.flushed_mark
        checkpoint = Checkpoint(
            log_time_ms=time_ms,
            queue_time_ms=min(time_ms, self._queue_time_ms),
            confirmed_offset=self._last_record_offset,
            flushed_offset=flushed,
        )
        if checkpoint != self._written:
            _put(self._directory.checkpoint, checkpoint)
            self._written = checkpoint

    def write_both(self) -> None:
        """Write both checkpoints, for when the first one is lost."""
        self.write()
        if self._written != self._written_before:
            assert self._written is not None, "`write` leaves one"
            _put(self._directory.previous_checkpoint, self._written)
            self._written_before = self._written


def _put(path: Path, checkpoint: Checkpoint) -> None:
    try:
        write_checkpoint(path, checkpoint)
    except OSError as error:
        if error.errno in _FULL:
            raise DiskFullError(f"the checkpoint cannot be written: {error}") from error
        raise
