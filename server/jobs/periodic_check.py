"""A thread that checks once a minute whether a job is due."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod

from store.errors import StoreClosedError, StoreError

logger = logging.getLogger(__name__)

CHECK_S = 60.0


class PeriodicCheck(ABC):
    """Checks every minute, on a thread of that name. Errors are logged.

    The first check is a minute after the start, when the server is less busy.
    """

    def __init__(self, name: str, period_s: float) -> None:
        """`period_s`: how often it is due; 0 for never."""
        self._period_s = period_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @abstractmethod
    def start_if_due(self) -> bool:
        """Start the job if it is due. Returns whether it did."""

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        """Start checking."""
        if self._period_s:
            self._thread.start()

    def close(self) -> None:
        """On return no check is running, and none follows. Repeatable."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(CHECK_S):
            try:
                self.start_if_due()
            except StoreClosedError:
                return
            except StoreError as error:
                logger.warning("%s cannot start a job that is due: %s", self._thread.name, error)
            except Exception:  # no thread for it, say: the next check may find one
                logger.exception("%s cannot start a job that is due", self._thread.name)
