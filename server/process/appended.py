"""A log file that other programs rotate: it is reopened after it was moved or removed."""

from __future__ import annotations

import logging
import logging.handlers
import queue
import threading
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger(__name__)

#: Lines that wait for the disk. Beyond that they are dropped, and counted.
WAITING_MOST = 100_000
_MODE = 0o640
_DRAIN_S = 2.0
#: A full disk rejects each line; the log reports that this often.
_COMPLAIN_EVERY_S = 10.0


class AppendedFile(logging.Handler):
    """Writes records on a thread of its own, so logging never waits for the disk.

    Thread: "appended-file"; `emit` on any. Failure: lines that the disk rejects are lost, and the
    process's log says so. Later lines are written once the disk accepts them again.
    """

    def __init__(self, path: Path, *, waiting_most: int = WAITING_MOST) -> None:
        """Raises OSError if the file cannot be opened."""
        super().__init__()
        path.touch(_MODE)
        self._file = _File(path)
        self._waiting: queue.Queue[logging.LogRecord | None] = queue.Queue(waiting_most)
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="appended-file", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._waiting.put_nowait(record)
        except queue.Full:
            self._dropped += 1

    def close(self) -> None:
        """Write pending lines, if the disk accepts them in time. Repeatable."""
        if self._thread.is_alive():
            try:
                self._waiting.put(None, timeout=_DRAIN_S)
            except queue.Full:
                return
            self._thread.join(_DRAIN_S)
        super().close()

    def _run(self) -> None:
        while (record := self._waiting.get()) is not None:
            try:
                self._file.handle(record)
            except OSError:  # it was moved, and cannot be created again
                self._file.handleError(record)
            if self._dropped:
                dropped, self._dropped = self._dropped, 0
                logger.error("dropped %d lines for %s", dropped, self._file.baseFilename)
        try:
            self._file.close()
        except OSError as error:  # Python's buffer of lines that were counted as lost
            logger.error("cannot close %s: %s", self._file.baseFilename, error)


class _File(logging.handlers.WatchedFileHandler):
    def __init__(self, path: Path) -> None:
        super().__init__(path, encoding="utf-8", errors="backslashreplace")
        self.setFormatter(logging.Formatter("%(message)s"))
        self._lost = 0
        self._complain_s = monotonic()

    def handleError(self, record: logging.LogRecord) -> None:
        self._lost += 1
        if monotonic() >= self._complain_s:
            self._complain_s = monotonic() + _COMPLAIN_EVERY_S
            logger.exception("lines for %s were lost: %d", self.baseFilename, self._lost)
            self._lost = 0
