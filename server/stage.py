"""How far the server is: opening its store, serving, or draining."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.errors import ServerDrainingError, ServerStartingError

if TYPE_CHECKING:
    from collections.abc import Callable


class Stage:
    """Starting, then ready, then perhaps failed, then draining; never back.

    Owned by the event loop's thread, but for `report`.
    """

    def __init__(self) -> None:
        self._open = False
        self._draining = False
        self._failed = False
        self._on_change: set[Callable[[], object]] = set()
        # Written by the thread that opens the store, read anywhere; replaced as one.
        self._progress = ("waiting", 0.0)

    def check_open(self) -> None:
        """Raises ServerStartingError before the store is open, ServerDrainingError after."""
        if self._draining:
            raise ServerDrainingError
        if not self._open:
            raise ServerStartingError(*self._progress)

    @property
    def is_open(self) -> bool:
        """Whether the store is, or was: the opening is over."""
        return self._open

    @property
    def is_ready(self) -> bool:
        """Whether calls are taken, and puts can be stored."""
        return self._open and not self._draining and not self._failed

    @property
    def is_draining(self) -> bool:
        """Whether the server ends."""
        return self._draining

    @property
    def progress(self) -> tuple[str, float]:
        """The step of opening, and the part of it that is done, 0 to 1."""
        return self._progress

    def report(self, step: str, fraction: float) -> None:
        """Note how far opening is. Any thread. Raises ServerDrainingError to end the opening."""
        self._progress = (step, fraction)
        if self._draining:
            raise ServerDrainingError

    def ready(self) -> None:
        """The store is open: calls are taken from now on."""
        self._open = True
        self._tell()

    def fail(self) -> None:
        """No put can be stored before the next start; calls are taken all the same. Repeatable."""
        self._failed = True
        self._tell()

    def drain(self) -> None:
        """No new calls; what waits or streams comes to its end. Repeatable."""
        self._draining = True
        self._tell()

    def on_change(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call `callback` when the server becomes ready, fails, or drains, or now if it drains.

        Returns how to take it back.
        """
        self._on_change.add(callback)
        if self._draining:
            callback()
        return lambda: self._on_change.discard(callback)

    def _tell(self) -> None:
        for callback in tuple(self._on_change):
            callback()
