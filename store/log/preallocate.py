"""Creates the next segments in a thread of its own, so that a roll costs the appender nothing.

A prepared segment is an ordinary, empty segment file behind the end of the log. A clean stop
removes it. After a crash it is loaded as a segment without records, and the cut that ends every
recovery removes or uses it.

The appender holds the append lock, and in a service it is the event loop, so it never waits here. A
segment that is not ready is an error that says that nothing was written and to retry.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from store.base import Changes, Lock
from store.errors import SegmentNotReadyError, StoreClosedError
from store.log.segment_set import SegmentSource

if TYPE_CHECKING:
    from store.log.segment import Segment

logger = logging.getLogger(__name__)

#: RocketMQ 5, AllocateMappedFileService: keeps two ahead.
_AHEAD = 2
#: Small segments fill sooner than a thread is scheduled: of these, more are kept ahead.
_AHEAD_BYTES = 16 << 20
_MOST_AHEAD = 8
#: A failed creation is retried at this interval, so that puts are not rejected once the disk has
#: room again.
RETRY_S = 1.0


def segments_ahead(segment_bytes: int) -> int:
    """Number of segments to keep ready: 2, or enough for 16 MiB, but at most 8."""
    return max(_AHEAD, min(_MOST_AHEAD, _AHEAD_BYTES // segment_bytes))


class Preallocator(SegmentSource):
    """Has the segments of another source created ahead, by a thread.

    Before `start` there is no thread, and the appender creates each segment itself. Thread:
    "preallocate", the only one that creates segments while it runs. `take` is for the appender,
    `start` and `stop` for the owner, `wait_ready` for any thread without locks. Locks: only
    `_lock`, never held while a file is created. The appender may call `take` with its own lock
    held, because `take` never waits. Failure: kept for each segment and raised to callers that need
    it, until a retry succeeds; there is one every second.
    """

    def __init__(
        self,
        source: SegmentSource,
        *,
        ahead: int | None = None,
        retry_s: float | None = None,
    ) -> None:
        """`source` creates the segments, on the thread of this service; `ahead` of them are kept
        ready, with 0 each is created on demand. None: the defaults above."""
        super().__init__(source.directory, source.segment_bytes)
        # Constant after construction.
        self._source = source
        self._ahead = segments_ahead(source.segment_bytes) if ahead is None else ahead
        self._retry_s = RETRY_S if retry_s is None else retry_s
        # A daemon, so that a program that ends by an error ends, without a clean close.
        self._thread = threading.Thread(target=self._run, name="preallocate", daemon=True)
        self._lock = Lock()
        self._changes = Changes(self._lock)
        # Guarded by _lock.
        self._wanted: set[int] = set()  # start offsets, those being made included
        self._ready: dict[int, Segment] = {}
        self._failed: dict[int, Exception] = {}  # includes those that are retried
        self._handed: Segment | None = None  # the last one taken
        self._started = False
        self._stopping = False

    def start(self) -> None:
        """From now on only the thread creates segments. Repeatable; not after `stop`."""
        with self._lock:
            if self._started:
                return
            self._started = True
        self._thread.start()

    def prepare(self, start_offset: int) -> None:
        """Request the segments from `start_offset` on. Does not wait."""
        with self._lock:
            self._want(start_offset, self._ahead)

    def take(self, start_offset: int, count: int = 1) -> Segment:
        """Take the empty segment that begins at `start_offset`, and request the ones behind it.

        `count`: how many are needed from there on. Never blocks: raises the error of the last
        attempt to create it (DiskFullError), or SegmentNotReadyError while it is being created,
        which can be retried; StoreClosedError after `stop`. An interrupted caller may take it
        again.
        """
        if not self._started:
            return self._source.take(start_offset)
        with self._lock:
            if self._stopping:
                raise StoreClosedError(self._thread.name)
            if self._handed is not None and self._handed.start_offset == start_offset:
                self._ready.pop(start_offset, None)
                return self._handed
            if start_offset in self._ready:
                self._want(start_offset + self.segment_bytes, max(self._ahead, count - 1))
                self._handed = self._ready[start_offset]
                del self._ready[start_offset]
                return self._handed
            if (error := self._failed.get(start_offset)) is not None:
                raise error.with_traceback(None)
            self._want(start_offset, max(self._ahead, count))
            raise SegmentNotReadyError(start_offset)

    def wait_ready(self, start_offset: int, timeout_s: float) -> bool:
        """Block until `take` would not raise SegmentNotReadyError. Returns False after
        `timeout_s`."""
        return self._changes.until(
            lambda: (
                self._stopping
                or start_offset in self._ready
                or start_offset in self._failed
                or start_offset not in self._wanted
            ),
            timeout_s,
        )

    def stop(self) -> None:
        """End the thread and remove unused segments. Repeatable."""
        with self._lock:
            self._stopping = True
            self._wanted.clear()
            self._changes.tell()
        if self._thread.is_alive():
            self._thread.join()
        # Last one first: a crash in between leaves no gap.
        while self._ready:
            segment = self._ready.pop(max(self._ready))
            try:
                segment.destroy()
            except OSError:
                logger.exception("%r stays behind: the next recovery removes it", segment)

    # --- inside ----------------------------------------------------------------------------

    def _want(self, start_offset: int, count: int) -> None:
        """Must hold _lock."""
        for ahead in range(count):
            wanted = start_offset + ahead * self.segment_bytes
            if wanted in self._failed:
                break  # a segment after a gap would make the next open fail
            if wanted not in self._ready:
                self._wanted.add(wanted)
        self._changes.tell()

    def _run(self) -> None:
        reported: int | None = None
        while (start_offset := self._next_wanted()) is not None:
            try:
                segment = self._source.take(start_offset)
            except Exception as error:
                # Any kind of error: otherwise the appender would never learn of it and retry
                # forever.
                if start_offset != reported:  # once, not for each attempt
                    logger.exception(
                        "segment %d could not be prepared; tried again every %g s",
                        start_offset,
                        self._retry_s,
                    )
                    reported = start_offset
                with self._lock:
                    self._failed[start_offset] = error
                    # A segment after a gap would make the next open fail.
                    self._wanted = {wanted for wanted in self._wanted if wanted < start_offset}
                    self._changes.tell()
            else:
                reported = None
                with self._lock:
                    self._ready[start_offset] = segment
                    self._failed.pop(start_offset, None)
                    self._wanted.discard(start_offset)
                    self._changes.tell()

    def _next_wanted(self) -> int | None:
        """The lowest requested offset. Waits for a request, or for the next attempt at one that
        failed; None at the end."""
        while not self._changes.until(
            lambda: self._stopping or self._wanted, self._retry_s if self._failed else None
        ):
            with self._lock:
                self._wanted.update(self._failed)
        with self._lock:
            return None if self._stopping else min(self._wanted)
