"""Starts a second Python process. Python runs one thread at a time, so long work that does not need
the open store runs in an interpreter of its own."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

#: Priority of processes that only use processor time that others leave.
_NICE = 10


def start_module(
    module: str,
    *arguments: str,
    stdin: int,
    stdout: int | None = None,
    low_priority: bool = False,
) -> subprocess.Popen[bytes]:
    """Start `python -m module` with the modules that this process runs, in its working directory,
    so that a relative path means the same to both. Raises OSError.

    The child only inherits its standard descriptors. It should exit when its input ends, so that
    none is left behind if the parent is killed. With `low_priority` it only uses otherwise idle
    processor time, where the system allows that.
    """
    path = [str(import_root(module)), *filter(None, [os.environ.get("PYTHONPATH")])]
    process = subprocess.Popen(
        # -P: modules in that directory must not be imported. -W: the module may be imported by its
        # package before it runs.
        [sys.executable, "-P", "-W", "ignore::RuntimeWarning:runpy", "-m", module, *arguments],
        stdin=stdin,
        stdout=stdout,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
    )
    if low_priority:  # at once, because its imports take half a second of processor time
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, process.pid, _NICE)
    return process


def import_root(module: str) -> Path:
    """The directory on the import path: a checkout, or the site-packages of an installation."""
    package = sys.modules[module.partition(".")[0]]
    return Path(package.__path__[0]).parent


def lines_of(pipe: IO[bytes], poll_s: float) -> Iterator[bytes | None]:
    """Yield the lines that a child writes to the pipe, as they arrive; None whenever none arrived
    for `poll_s`. Ends with the child's output."""
    waiting = b""
    # Never select(): it knows no descriptor above 1,023, and a service has more.
    with selectors.DefaultSelector() as ready:
        ready.register(pipe, selectors.EVENT_READ)
        while True:
            if not ready.select(poll_s):
                yield None
                continue
            # Without the pipe's buffer, because the selector does not see bytes in it.
            piece = os.read(pipe.fileno(), 64 << 10)
            if not piece:
                return
            *lines, waiting = (waiting + piece).split(b"\n")
            yield from lines
