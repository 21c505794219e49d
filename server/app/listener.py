"""What a server is given: a function that opens its store, and listeners for its state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from store.base import no_progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from migration.opening import Opened
    from server.errors import SettingsRefusedError
    from server.settings import Change
    from store.base import Progress
    from store.config import StoreConfig


class StoreOpener(Protocol):
    """Opens the store: migration.opening.open_any."""

    def __call__(self, config: StoreConfig, *, progress: Progress = no_progress) -> Opened: ...


class Listener(Protocol):
    """Is notified of the server's state, in the event loop."""

    def listening(self, host: str, port: int) -> None: ...

    def opening(self, step: str, fraction: float) -> None: ...

    def ready(self, host: str, port: int) -> None: ...

    def reloading(self) -> None: ...

    def reload_refused(self, error: SettingsRefusedError) -> None: ...

    def reloaded(self, taken: Sequence[Change], waiting: Sequence[Change]) -> None: ...

    def draining(self) -> None: ...

    def stopped(self) -> None: ...
