"""The state of the server: opening its store, serving, or draining."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from server.errors import ServerDrainingError, ServerStartingError
from server.in_turns import in_turns

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

_SEE = "see the server's log and `kvcq stats`"


class Stage:
    """Starting, then open, then perhaps failed, then draining; never back. While open, the store
    may temporarily be unable to write.

    Owned by the event loop's thread, except `report`.
    """

    def __init__(self) -> None:
        self._open = False
        self._draining = False
        self._failed = False
        self._no_writes: str | None = None
        self._remark: str | None = None
        self._on_change: set[Callable[[], object]] = set()
        # Written by the thread that opens the store, read anywhere; replaced as one.
        self._progress = ("waiting", 0.0)

    def check_open(self) -> None:
        """Raises ServerStartingError before the store is open, ServerDrainingError during
        shutdown."""
        if self._draining:
            raise ServerDrainingError
        if not self._open:
            raise ServerStartingError(*self._progress)

    @property
    def is_open(self) -> bool:
        """Whether the store is open or was open."""
        return self._open

    @property
    def is_ready(self) -> bool:
        """Whether calls are accepted, and puts can be stored."""
        return self._open and not self._draining and not self._failed and self._no_writes is None

    @property
    def why_not_ready(self) -> str | None:
        """The reason in a line, for operators."""
        if self.is_ready:
            return None
        if self._draining:
            return "the server is shutting down"
        if not self._open:
            step, fraction = self._progress
            return f"the store is being opened: {step}, {fraction:.0%} done"
        return f"the store rejects writes: {self._no_writes or _SEE}"

    @property
    def remark(self) -> str | None:
        """A problem that operators should know although the server is ready; None if there is
        none."""
        return self._remark if self.is_ready else None

    @property
    def is_draining(self) -> bool:
        """Whether the server is shutting down."""
        return self._draining

    @property
    def progress(self) -> tuple[str, float]:
        """The current step of opening, and the fraction done, 0 to 1."""
        return self._progress

    def report(self, step: str, fraction: float) -> None:
        """Set the progress of opening. Any thread. Raises ServerDrainingError to abort the
        opening."""
        if step != self._progress[0]:
            logger.debug("opening the store: %s", step)
        self._progress = (step, fraction)
        if self._draining:
            raise ServerDrainingError

    def ready(self) -> None:
        """The store is open: calls are accepted from now on."""
        self._open = True
        logger.debug("the store is open")
        self._tell()

    def fail(self) -> None:
        """Puts will fail until the next start; calls are still accepted. Repeatable."""
        self._failed = True
        self._tell()

    def set_no_writes(self, why: str | None) -> None:
        """Puts cannot be stored for now, and why; None if they can."""
        told, self._no_writes = self._no_writes, why
        if (told is None) != (why is None):
            self._tell()

    def set_remark(self, remark: str | None) -> None:
        """Set a sentence about a problem that stops nothing."""
        self._remark = remark

    def drain(self) -> None:
        """Reject new calls, and end waits and streams. Repeatable."""
        self._draining = True
        self._tell()

    def on_change(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call `callback` when readiness changes or the server drains, or now if it is draining:
        immediately, or within a few turns of the loop if there are many.

        Returns a function that removes it.
        """
        self._on_change.add(callback)
        if self._draining:
            callback()
        return lambda: self._on_change.discard(callback)

    def _tell(self) -> None:
        callbacks = self._on_change
        in_turns(callback for callback in tuple(callbacks) if callback in callbacks)
