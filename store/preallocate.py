"""Prepares the next segments ahead, so that a roll costs the appender nothing.

What is prepared is an ordinary, empty segment file behind the end of the log. A clean stop removes
it; after a crash it is found on loading as a segment without a record, and the cut that ends every
recovery removes it, or goes on with it.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from store.errors import StoreBusyError, StoreClosedError

if TYPE_CHECKING:
    from store.segment import Segment
    from store.segment_set import SegmentSource

logger = logging.getLogger(__name__)

#: RocketMQ 5, AllocateMappedFileService: waits 5 s for a file, keeps two ahead.
WAIT_TIMEOUT_S = 5.0
AHEAD = 2


class Preallocator:
    """Hands out segments that another thread made ready: a SegmentSource.

    Thread: "preallocate", the only one that creates segments while it runs. `take` belongs to the
    appender, `start` and `stop` to the owner.
    Locks: `_changed` alone, never held while a file is made. The appender may hold its own lock
    when it comes in here.
    Failure: of one segment, kept until it is needed. `take` then has it tried again, and raises
    only what that attempt says: a disk that was full an hour ago refuses nothing now.
    """

    def __init__(
        self, source: SegmentSource, segment_bytes: int, *, timeout_s: float = WAIT_TIMEOUT_S
    ) -> None:
        """`source` creates the segments, on the thread of this service."""
        # Constant after construction.
        self._source = source
        self._segment_bytes = segment_bytes
        self._timeout_s = timeout_s
        # A daemon, so that a program that ends by an error ends, without a clean close.
        self._thread = threading.Thread(target=self._run, name="preallocate", daemon=True)
        self._changed = threading.Condition()
        # Guarded by _changed.
        self._wanted: set[int] = set()  # start offsets, those being made included
        self._ready: dict[int, Segment] = {}
        self._failed: dict[int, Exception] = {}
        self._started = False
        self._stopping = False

    def start(self) -> None:
        self._started = True
        self._thread.start()

    def prepare(self, start_offset: int) -> None:
        """Have the segments at `start_offset` and behind it made ready. Does not wait.

        One whose attempt failed is left alone until it is taken.
        """
        with self._changed:
            self._want_ahead(start_offset)

    def take(self, start_offset: int) -> Segment:
        """The empty segment that begins at `start_offset`; the two behind it are begun.

        Raises DiskFullError or whatever its creation raised, StoreBusyError when it is not ready
        within 5 s (it goes on being made: ask again), StoreClosedError after `stop`.
        """
        if not self._started:
            return self._source.take(start_offset)
        with self._changed:
            if self._stopping:
                raise StoreClosedError(self._thread.name)
            self._failed.pop(start_offset, None)
            if start_offset not in self._ready:
                self._wanted.add(start_offset)
                self._changed.notify_all()
                answered = self._changed.wait_for(
                    lambda: (
                        start_offset in self._ready
                        or start_offset in self._failed
                        or self._stopping
                    ),
                    self._timeout_s,
                )
                if not answered:
                    raise StoreBusyError(
                        f"segment {start_offset} is not ready after {self._timeout_s:g} s"
                    )
            if (error := self._failed.get(start_offset)) is not None:
                raise error.with_traceback(None)
            if start_offset not in self._ready:
                raise StoreClosedError(self._thread.name)
            segment = self._ready.pop(start_offset)
            self._want_ahead(start_offset + self._segment_bytes)
            return segment

    def stop(self) -> None:
        """End the thread and remove what nobody took. Repeatable."""
        with self._changed:
            self._stopping = True
            self._wanted.clear()
            self._changed.notify_all()
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

    def _want_ahead(self, start_offset: int) -> None:
        """Called with _changed held."""
        for ahead in range(AHEAD):
            wanted = start_offset + ahead * self._segment_bytes
            if wanted not in self._ready and wanted not in self._failed:
                self._wanted.add(wanted)
        self._changed.notify_all()

    def _run(self) -> None:
        reported: int | None = None
        while (start_offset := self._next_wanted()) is not None:
            try:
                segment = self._source.take(start_offset)
            except Exception as error:
                # Any kind: what is not raised to the appender would leave it waiting.
                if start_offset != reported:  # once, not for each put that tries again
                    logger.exception("segment %d could not be prepared", start_offset)
                    reported = start_offset
                with self._changed:
                    self._failed[start_offset] = error
                    # One behind a gap would be in the way of the next open.
                    self._wanted = {wanted for wanted in self._wanted if wanted < start_offset}
                    self._changed.notify_all()
            else:
                with self._changed:
                    self._ready[start_offset] = segment
                    self._wanted.discard(start_offset)
                    self._changed.notify_all()

    def _next_wanted(self) -> int | None:
        """The lowest offset that is asked for; waits for one; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or self._wanted)
            return None if self._stopping else min(self._wanted)
