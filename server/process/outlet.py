"""Writes lines to a stream whose reader may hang, without ever waiting for it.

A full pipe, as when a supervisor hangs, stops the process that writes into it. In a server that is
the event loop: all calls would wait for the reader of a log.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

#: At the end of a process its last lines are waited for.
FLUSH_S = 1.0
#: Characters that wait for a reader. Beyond that lines are dropped, and counted.
WAITING_MOST = 1 << 20


def in_words(lines: int) -> str:
    """For people."""
    return f"{lines} lines were dropped here: they were not read in time"


def as_json(lines: int) -> str:
    """Between lines that are objects."""
    return json.dumps({"event": "dropped", "lines": lines})


class Outlet:
    """Writes text to a descriptor on a thread of its own.

    It does not use a Python file object: at exit the interpreter would wait for its lock, or abort,
    while the thread hangs in a write. Thread: "outlet", a daemon; `write` on any. Locks:
    `_changed`, never held during a write. Failure: after a failed write nothing more is written,
    and further text is dropped.
    """

    def __init__(
        self,
        descriptor: int,
        *,
        waiting_most: int = WAITING_MOST,
        dropped: Callable[[int], str] = in_words,
    ) -> None:
        """`dropped` formats the line with the number of dropped ones."""
        # Constant after construction.
        self._descriptor = descriptor
        self._dropped_line = dropped
        self._most = waiting_most
        self._changed = threading.Condition()
        # Guarded by _changed.
        self._waiting: deque[str] = deque()
        self._size = 0  # bytes that wait or are being written
        self._dropped = 0  # lines since the last one that was accepted
        self._is_broken = False
        self._thread = threading.Thread(target=self._run, name="outlet", daemon=True)
        self._thread.start()

    def write(self, text: str) -> None:
        """Queue the text; it is written later, or dropped and counted. Never waits."""
        with self._changed:
            if self._is_broken or self._size + len(text) > self._most:
                self._dropped += text.count("\n")
                return
            if self._dropped:
                text = f"{self._dropped_line(self._dropped)}\n{text}"
                self._dropped = 0
            self._waiting.append(text)
            self._size += len(text)
            self._changed.notify_all()

    def drain(self, timeout_s: float = FLUSH_S) -> bool:
        """Block until everything queued so far is written. Returns False after `timeout_s`."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._size or self._is_broken, timeout_s)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                text = "".join(self._waiting)
                self._waiting.clear()
            data = memoryview(text.encode("utf-8", "backslashreplace"))
            try:
                while data:
                    data = data[os.write(self._descriptor, data) :]
            except OSError:  # its reader is gone
                with self._changed:
                    self._is_broken = True
                    self._changed.notify_all()
                return
            with self._changed:
                self._size -= len(text)
                self._changed.notify_all()


class OutletHandler(logging.Handler):
    """Writes log records as lines of an outlet."""

    def __init__(self, outlet: Outlet) -> None:
        super().__init__()
        self._outlet = outlet

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._outlet.write(self.format(record) + "\n")
        except Exception:  # noqa: BLE001 - as logging has it: a line that is wrong ends nothing
            self.handleError(record)

    def flush(self) -> None:
        """Block until queued lines are written, or `FLUSH_S` seconds have passed."""
        self._outlet.drain()
