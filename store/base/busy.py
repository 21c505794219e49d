"""Waits for a database that rejects writes for the moment."""

from __future__ import annotations

import time
from itertools import count
from typing import TYPE_CHECKING

from store.errors import LACKS, StoreBusyError

if TYPE_CHECKING:
    from collections.abc import Callable

#: Half a minute.
_TRIES = 1500
_WAIT_S = 0.02


def retry_while_busy(call: Callable[[], None], *, give_up: bool = True) -> None:
    """Run `call`, and repeat it for up to half a minute while the database is busy; without
    `give_up`, forever.

    Raises StoreBusyError if it is still busy then, and any other error of `call`. A lack of disk
    space or of file descriptors is raised at once, since it would last.
    """
    for _ in range(_TRIES) if give_up else count():
        try:
            return call()
        except LACKS:
            raise
        except StoreBusyError:
            time.sleep(_WAIT_S)
    return call()
