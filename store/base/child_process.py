"""A process of our own beside this one: Python runs one thread at a time, so what takes long and
needs nothing of an open store is done by an interpreter of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

#: Of processes that take what others leave of the processors.
_NICE = 10


def start_module(
    module: str,
    *arguments: str,
    stdin: int,
    stdout: int | None = None,
    low_priority: bool = False,
) -> subprocess.Popen[bytes]:
    """`python -m module`, with the modules that this process runs, in the directory that it runs
    in: a relative path means the same to both. Raises OSError.

    It inherits no descriptor but its standard ones. It should end when its input does: then none
    is left behind by a parent that is killed. With `low_priority` it takes what others leave of
    the processors, where that is allowed.
    """
    path = [str(import_root(module)), *filter(None, [os.environ.get("PYTHONPATH")])]
    process = subprocess.Popen(
        # -P: what lies in that directory is nobody's module. -W: a door may import the module.
        [sys.executable, "-P", "-W", "ignore::RuntimeWarning:runpy", "-m", module, *arguments],
        stdin=stdin,
        stdout=stdout,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
    )
    if low_priority:  # at once: what it imports takes half a second of a processor
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, process.pid, _NICE)
    return process


def import_root(module: str) -> Path:
    """The directory on the import path: a checkout, or the site-packages of an installation."""
    package = sys.modules[module.partition(".")[0]]
    return Path(package.__path__[0]).parent
