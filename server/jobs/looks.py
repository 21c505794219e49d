"""Looks now and then whether something is due."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from store.errors import StoreClosedError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

LOOK_S = 60.0


class Looks:
    """Calls `look` every minute, on a thread of that name. What it raises is logged.

    The first call is a minute after the start: a server that starts has enough to do.
    """

    def __init__(self, name: str, look: Callable[[], object]) -> None:
        self._look = look
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """No call is under way on return, and none follows. Repeatable."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_S):
            try:
                self._look()
            except StoreClosedError:
                return
            except StoreError as error:
                logger.warning("%s could not begin what is due: %s", self._thread.name, error)
