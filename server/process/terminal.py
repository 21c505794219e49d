"""Whether a person is at the process's terminal."""

from __future__ import annotations

import os


def has_terminal() -> bool:
    """Whether the process has a controlling terminal that is still open.

    SIGHUP means that it was closed, or that a user sent the signal; this distinguishes the two.
    """
    try:
        opened = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    os.close(opened)
    return True
