"""A process that puts a load on a store until it kills itself at a named point.

Run as `python -m tests.crash.loads LOAD ROOT MODE SEED POINT COUNT FLUSHED`. For points see
tests/crash/putting_child.py. FLUSHED is a file that says, whenever the process dies, up to which
offset the log is durable: a loss of power leaves that.
"""

from __future__ import annotations

import mmap
import random
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from store.config import FlushMode
from store.log.watermark import Watermark
from tests.crash.loads.killing import LOADS
from tests.crash.loads.load import tell
from tests.crash.putting_child import kill_at
from tests.support.fake_clock import FakeClock
from tests.support.stores import open_small

if TYPE_CHECKING:
    from store.message_store import MessageStore


def main() -> None:
    name, root, mode, seed, point, count, flushed = sys.argv[1:]
    clock, kind = FakeClock(), LOADS[name]
    with open_small(
        Path(root), clock, flush_mode=FlushMode(mode), reserved_hours=kind.reserved_hours
    ) as store:
        _note_flushed(store, Path(flushed))
        load = kind(store, clock, random.Random(seed))
        load.begin()
        tell("begun", [])
        kill_at(point, int(count))
        load.run()


def _note_flushed(store: MessageStore, path: Path) -> None:
    """The file has what is durable before anybody is told of it."""
    flushed, advance, lock = store._appends.flushed, Watermark.advance, threading.Lock()
    path.write_bytes(flushed.value.to_bytes(8, "big"))
    with path.open("r+b") as file:
        noted = mmap.mmap(file.fileno(), 8)

    def note_and_advance(watermark: Watermark, to: int) -> None:
        if watermark is flushed:
            with lock:
                noted[:] = max(to, int.from_bytes(noted, "big")).to_bytes(8, "big")
        advance(watermark, to)

    setattr(Watermark, "advance", note_and_advance)  # noqa: B010


if __name__ == "__main__":
    main()
