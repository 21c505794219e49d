"""Settings of a running server: its sources can be read again, and some values applied.

Thread: the event loop's, except `read`, which blocks.
"""

from __future__ import annotations

import dataclasses
import shlex
from typing import TYPE_CHECKING, NamedTuple

from server.settings.names import KNOWN
from server.settings.sources import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from server.config import ServerConfig
    from server.settings.sources import Sources


class Change(NamedTuple):
    """A setting with a new value in the sources."""

    name: str
    before: object
    after: object


class Reloaded(NamedTuple):
    """The result of a reload."""

    taken: tuple[Change, ...]
    #: They are taken by the next start.
    waiting: tuple[Change, ...]


class RunningSettings:
    """The current settings, and listeners for changes."""

    def __init__(self, settings: Settings, sources: Sources | None = None) -> None:
        """Without sources, settings cannot be reloaded."""
        self._settings = settings
        self._sources = sources
        self._waiting: tuple[Change, ...] = ()
        self._listeners: list[Callable[[ServerConfig], None]] = []

    @property
    def config(self) -> ServerConfig:
        return self._settings.config

    @property
    def look_command(self) -> str:
        """The command that shows, on this machine, whether the sources are valid."""
        file = None if self._sources is None else self._sources.file
        return "kvcq config" if file is None else f"kvcq config --config {shlex.quote(str(file))}"

    @property
    def settings(self) -> Settings:
        return self._settings

    @property
    def waiting(self) -> tuple[Change, ...]:
        """Values found by the last reload that need a restart."""
        return self._waiting

    def on_change(self, listener: Callable[[ServerConfig], None]) -> None:
        """Call `listener` with the new configuration after each change.

        It may only copy references and numbers, and must not block or raise.
        """
        self._listeners.append(listener)

    def read(self) -> Settings:
        """Read the sources. Blocks; any thread. Raises InvalidArgumentError, StoreError and
        OSError, as at the start; nothing is applied then."""
        if self._sources is None:
            return self._settings
        return self._sources.read().with_recorded_segments()

    def take(self, read: Settings) -> Reloaded:
        """Apply the settings that can change at run time. Raises InvalidArgumentError if they
        conflict with the settings that stay; nothing is applied then."""
        before, after = self._settings.values(), read.values()
        changes = [
            Change(name, before[name], after[name]) for name in KNOWN if before[name] != after[name]
        ]
        # A setting without a value stands for one that only opening a store determines.
        taken = tuple(
            one for one in changes if KNOWN[one.name].about.live and one.after is not None
        )
        config = _with(self.config, taken)
        config.store_config(config.port)
        self._waiting = tuple(one for one in changes if one not in taken)
        stays = {one.name for one in self._waiting}
        origins = {name: (self._settings if name in stays else read).origin(name) for name in KNOWN}
        self._settings = Settings(config, origins, read.retired)
        if taken:
            for listener in self._listeners:
                listener(config)
        return Reloaded(taken, self._waiting)


def _with(config: ServerConfig, changes: tuple[Change, ...]) -> ServerConfig:
    tables: dict[str, dict[str, object]] = {"server": {}, "store": dict(config.store)}
    for change in changes:
        known = KNOWN[change.name]
        tables[known.table][known.key] = change.after
    return dataclasses.replace(config, **tables["server"], store=tables["store"])  # type: ignore[arg-type]  # checked by the class
