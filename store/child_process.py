"""A process of our own beside this one: Python runs one thread at a time, so what takes long and
needs nothing of an open store is done by an interpreter of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path


def start_module(
    module: str, *arguments: str, stdin: int, stdout: int | None = None
) -> subprocess.Popen[bytes]:
    """`python -m module`, with the modules that this process runs. Raises OSError.

    It inherits no descriptor but its standard ones. It should end when its input does: then none
    is left behind by a parent that is killed.
    """
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=stdin,
        stdout=stdout,
        cwd=import_root(module),
    )


def import_root(module: str) -> Path:
    """The directory on the import path: a checkout, or the site-packages of an installation."""
    package = sys.modules[module.partition(".")[0]]
    return Path(package.__path__[0]).parent


def lower_priority() -> None:
    """This process takes what others leave of the processors, where that is allowed."""
    with suppress(OSError):
        os.nice(10)
