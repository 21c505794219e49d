"""Keeps the pages that the appender is about to write in memory.

The first touch of a page of a fresh segment makes the kernel find and clear memory, on the
appending thread and with the GIL held. On a virtual machine that is half the cost of an append.
This service reads a little ahead of the appender instead. Reading blocks that were never written
brings cleared pages into the page cache, writes nothing to the disk, and cannot interfere with an
append. Long appends do not need it, because they go through the file (`Segment.append`), so nothing
is read ahead while they make up nearly all of the log.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.log.segment import Segment

logger = logging.getLogger(__name__)

#: How far ahead pages are kept: a third of a second at 200 MB/s.
AHEAD_BYTES = 64 << 20
_STEP_BYTES = 1 << 20
_COPIED_SHARE = 8  # pages are read ahead when at least one byte in this many is copied into them
_BUSY_WAIT_S = 0.05
_IDLE_WAIT_S = 0.5


class PageAhead:
    """Reads ahead of the appender, within its segment.

    Thread: "page-ahead"; it only reads. Locks: none. Failure: harmless, appends become slower; an
    error is logged and ends the service.
    """

    def __init__(
        self, last_segment: Callable[[], Segment | None], ahead_bytes: int = AHEAD_BYTES
    ) -> None:
        # Constant after construction.
        self._last_segment = last_segment
        self._ahead_bytes = ahead_bytes
        self._thread = threading.Thread(target=self._run, name="page-ahead", daemon=True)
        self._stopped = threading.Event()
        # Owned by the thread: how far the segment that begins at `_start` was read.
        self._start = -1
        self._read_to = 0
        # Appended and copied bytes at the last check, and the result.
        self._seen = (0, 0)
        self._is_wanted = True

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread. Repeatable."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def run_once(self) -> int:
        """Read missing pages ahead of the appender. Returns the number of bytes read."""
        segment = self._last_segment()
        if segment is None:
            return 0
        if segment.start_offset != self._start:
            self._start = segment.start_offset
            self._read_to = segment.appended
            self._seen = (segment.appended, segment.copied)
        self._look_at_appends(segment)
        self._read_to = max(self._read_to, segment.appended)
        if not self._is_wanted:
            return 0
        first = self._read_to
        end = min(segment.appended + self._ahead_bytes, segment.size)
        # Half a window at a time: a step for each few appends would wake for nothing.
        if end - first < min(self._ahead_bytes // 2, segment.size - segment.appended):
            return 0
        while self._read_to < end and not self._stopped.is_set():
            size = min(_STEP_BYTES, end - self._read_to)
            segment.touch(self._read_to, size)
            self._read_to += size
        return self._read_to - first

    def _look_at_appends(self, segment: Segment) -> None:
        appended, copied = segment.appended, segment.copied
        if appended > self._seen[0]:
            share = (copied - self._seen[1]) * _COPIED_SHARE
            self._is_wanted = share >= appended - self._seen[0]
            self._seen = (appended, copied)

    def _run(self) -> None:
        try:
            wait_s = _BUSY_WAIT_S
            while not self._stopped.wait(wait_s):
                wait_s = _BUSY_WAIT_S if self.run_once() else _IDLE_WAIT_S
        except (OSError, StoreError):
            logger.exception("reading ahead ends; appends touch their pages themselves")
