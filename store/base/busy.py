"""Waiting for a database that takes no writes for the moment."""

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
    """`call` has succeeded. It is repeated for half a minute, or unless `give_up` for ever.

    Raises StoreBusyError when that did not help, and what else `call` raises; a lack of space or of
    file descriptors at once, since it would last.
    """
    for _ in range(_TRIES) if give_up else count():
        try:
            return call()
        except LACKS:
            raise
        except StoreBusyError:
            time.sleep(_WAIT_S)
    return call()
