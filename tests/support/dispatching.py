"""A log with a reput service that dispatches to a recorder."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from kvcq.state_store import KvStateStore
from kvcq.tables.keys import FAMILIES, STATE
from store.config import FlushMode
from store.derive.reput import ReputService
from store.derive.state_applier import StateApplier
from store.errors import (
    StoreBusyError,
)
from store.format.preparing import prepare
from store.log.acknowledgement import Acknowledgement
from store.log.batch_encoder import BatchEncoder
from store.log.commit_log import CommitLog
from store.log.queue_offsets import QueueOffsets
from store.log.segment_set import SegmentSet
from store.log.watermark import Watermark
from store.message import Message
from store.topics.admission import Admission
from tests.support.fake_clock import FakeClock
from tests.support.memory_engine import MemoryEngine
from tests.support.until import wait_until

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from store.consume_queue import ConsumeQueueStore, DispatchRequest

SEGMENT = 8192


def until_met(stall: threading.Event) -> Callable[[Watermark, int, float], bool]:
    """For Watermark.wait_for: waits in vain once dispatch has met the stall, and not before."""

    def wait_for(mark: Watermark, end: int, _timeout_s: float) -> bool:
        wait_until(lambda: mark.value >= end or stall.is_set())
        return mark.value >= end

    return wait_for


class Recorder:
    """A dispatcher that remembers, and refuses or fails when told to."""

    def __init__(self) -> None:
        self.requests: list[DispatchRequest] = []
        self.calls: list[int] = []
        self.batches: list[tuple[Sequence[DispatchRequest], int]] = []
        self.stalls_after: int | None = None  # calls
        self.end = 0
        self.busy = 0
        self.error: Exception | None = None
        self.gathers = False

    def dispatch(self, requests: Sequence[DispatchRequest], end_offset: int) -> None:
        if self.error is not None:
            raise self.error
        if self.stalls_after is not None and len(self.calls) >= self.stalls_after:
            raise StoreBusyError("planted")
        if self.busy > 0:
            self.busy -= 1
            raise StoreBusyError("planted")
        assert end_offset > self.end
        self.requests += requests
        self.calls.append(len(requests))
        self.batches.append((requests, end_offset))
        self.end = end_offset


class Harness:
    """A log with a reput service that dispatches to a recorder."""

    def __init__(self, directory: Path, *, inline: bool = True) -> None:
        self.segments = SegmentSet.load(directory, SEGMENT)
        if self.segments.last is None:
            self.segments.roll()
        encoder = BatchEncoder(("127.0.0.1", 1), crc_item=True)
        self.log = CommitLog(
            self.segments,
            QueueOffsets(1024, 0, self._load, lambda: 0),
            encoder,
            FakeClock(),
            hot_read_bytes=1 << 30,
        )
        self.recorder = Recorder()
        self.dispatched = Watermark("dispatched", self.log.start_offset)
        self.limit: int | None = None
        self.dead: set[str] = set()
        acknowledged = Acknowledgement(
            FlushMode.ASYNC if inline else FlushMode.SYNC,
            lambda: self.log.appended_offset,
            Watermark("flushed", self.log.start_offset),
            self.dispatched,
        )
        limit = lambda: self.log.appended_offset if self.limit is None else self.limit  # noqa: E731
        acknowledged.limit = limit  # type: ignore[method-assign]
        self.reput = ReputService(
            self.log,
            self.recorder,
            acknowledged,
            Admission(self, {}),
            StateApplier(
                self.log,
                KvStateStore(MemoryEngine((*FAMILIES, STATE))),
                cast("ConsumeQueueStore", self.recorder),
            ),
        )
        self.appended: list[DispatchRequest] = []

    def get(self, topic: str, /) -> int | None:
        """From where a topic lives."""
        return None if topic in self.dead else 0

    @staticmethod
    def _load(queues: Sequence[tuple[str, int]], light: Sequence[str], _log_end: int) -> list[int]:
        return [0] * (len(queues) + len(light))

    def append(self, *messages: Message, defer: bool = False) -> int:
        prepared = [prepare(message, n, 1 << 20, 100) for n, message in enumerate(messages)]
        dispatch = self.reput.defer if defer else self.reput.dispatch_or_queue
        with self.log.lock:
            done = self.log.append(messages, prepared, dispatch, separate=True)
        self.appended += done.requests
        return done.end_offset

    def close(self) -> None:
        if self.reput._thread.is_alive():
            self.reput.stop()
        self.log.close()


SOME = (
    Message("T", b"a"),
    Message("T", b"b", 1, tag="t", keys=("k1", "k2"), light_queues=("%LMQ%a", "%LMQ%b")),
    Message("U", b"c" * 3000, properties={"UNIQ_KEY": "u"}),
    Message("T", b"d", sys_flag=4, keys=("p",)),
    Message("T", b"e", sys_flag=12, keys=("r",)),
)
