"""Ends a process that was told twice to end, or that does not end after everything is closed.

A thread that hangs, on a disk that does not respond or through a defect, keeps a Python process
alive, since the interpreter waits for it. Acknowledged data is as safe as after a kill.
"""

from __future__ import annotations

import logging
import os
import threading

logger = logging.getLogger(__name__)

#: How long an ordinary end may take once it is urgent, or when nothing is left to do.
PATIENCE_S = 5.0
#: How long writing the last line of the log may take; it may go to a pipe that is not read.
_LAST_LINE_S = 1.0
#: Taken by the first call, and kept.
_begun = threading.Lock()


def end_process_soon(why: str) -> None:
    """End the process within `PATIENCE_S`, normally or with exit code 1.

    Thread: any. Repeatable: the first call counts, and its reason is logged. Durability: as after a
    kill. The next opening recovers what was not closed.
    """
    if not _begun.acquire(blocking=False):
        return
    # Both threads start now, because Python 3.12 starts none while the interpreter ends. They are
    # daemons, so they do not block a process that ends on its own.
    said = threading.Event()
    threading.Thread(target=_say, args=(why, said), name="last-words", daemon=True).start()
    threading.Thread(target=_end, args=(said,), name="last-resort", daemon=True).start()


def _end(said: threading.Event) -> None:
    said.wait(PATIENCE_S + _LAST_LINE_S)
    os._exit(1)


def _say(why: str, said: threading.Event) -> None:
    never = threading.Event()
    never.wait(PATIENCE_S)
    alive = ", ".join(
        thread.name
        for thread in threading.enumerate()
        if not thread.daemon and thread is not threading.main_thread()
    )
    logger.error("%s, but it still runs after %g s; threads: %s", why, PATIENCE_S, alive or "-")
    for handler in logging.getLogger().handlers:
        handler.flush()
    said.set()
