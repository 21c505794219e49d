"""`python -m tests.support.timed_server …`: the server, its event loop watched from inside.

A callback a millisecond sees how much processor time the loop's thread took since the one before:
no call waited longer for the loop's own work. The longest of each second is a line of the file that
the environment variable KVCQ_TEST_ROUNDS names, in seconds.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from time import thread_time
from typing import TYPE_CHECKING

import uvloop

from server.cli.main import main

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_plain_loop = uvloop.new_event_loop
_TICK_S = 0.001
_LINE_S = 1.0


class _Ticks:
    def __init__(self, loop: AbstractEventLoop, file: Path) -> None:
        self._loop = loop
        self._file = file
        self._longest_s = self._last_s = 0.0
        self._line_at = loop.time() + _LINE_S
        loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._last_s = thread_time()
        self._loop.call_later(_TICK_S, self._tick)

    def _tick(self) -> None:
        busy_s = thread_time() - self._last_s
        self._longest_s = max(self._longest_s, busy_s)
        if self._loop.time() >= self._line_at:
            with self._file.open("a", encoding="ascii") as lines:
                lines.write(f"{self._longest_s}\n")
            self._longest_s = 0.0
            self._line_at += _LINE_S
        self._begin()


def _watched_loop() -> AbstractEventLoop:
    loop: AbstractEventLoop = _plain_loop()
    _Ticks(loop, Path(os.environ["KVCQ_TEST_ROUNDS"]))
    return loop


if __name__ == "__main__":
    uvloop.new_event_loop = _watched_loop
    main(sys.argv[1:], prog_name="kvcq")
