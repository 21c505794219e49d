"""Whether a person sits before the process."""

from __future__ import annotations

import os


def has_terminal() -> bool:
    """Whether the process has a terminal that controls it, and that nobody has closed yet.

    SIGHUP means that it was closed, or that somebody sent the signal: this tells which.
    """
    try:
        opened = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    os.close(opened)
    return True
