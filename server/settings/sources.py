"""Defaults, then a file, then the environment, then flags; with the origin of each value.

The file has two tables, `[server]` and `[store]`; their keys are the field names of ServerConfig
and store.config.StoreConfig. The store's root is the server's `data_dir`, so it has no key.
"""

from __future__ import annotations

import dataclasses
import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from server.config import ServerConfig, in_table
from server.errors import UnknownSettingError
from server.settings.conversion import converted
from server.settings.names import (
    KNOWN,
    TABLES,
    is_retired,
    known_setting,
    name_of_variable,
    variable_of,
)
from store.errors import InvalidArgumentError
from store.store_dir import inspect

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


class Origin(NamedTuple):
    """Where a value came from."""

    kind: str  # default, file, environment, flag, store or program
    where: str = ""  # the file, the variable, the flag

    def __str__(self) -> str:
        return self.where or self.kind


_DEFAULT = Origin("default")


@dataclass(frozen=True)
class Settings:
    """The result of all sources."""

    config: ServerConfig
    #: Where each setting's value comes from; settings without one have their default.
    origins: Mapping[str, Origin]
    #: Names that were settings once, and where they stand: they have no effect.
    retired: tuple[tuple[str, Origin], ...] = ()

    @classmethod
    def of(cls, config: ServerConfig) -> Settings:
        """The settings of a program that builds its configuration itself."""
        values = cls(config, {}).values()
        given = {name for name in values if values[name] != KNOWN[name].default}
        return cls(config, dict.fromkeys(given, Origin("program")))

    def origin(self, name: str) -> Origin:
        return self.origins.get(name, _DEFAULT)

    def warnings(self) -> list[str]:
        """A line for each name that has no effect."""
        return [
            f"{name} is no longer a setting and has no effect; remove it from {origin}"
            for name, origin in self.retired
        ]

    def values(self) -> dict[str, object]:
        """Every setting, in the order of declaration."""
        store = self.config.store_config(self.config.port)
        return {
            name: getattr(store if known.table == "store" else self.config, known.key)
            for name, known in KNOWN.items()
        }

    def with_recorded_segments(self) -> Settings:
        """The settings with the segment size that the store was created with, unless another one is
        given.

        Raises StoreFormatError and OSError if the directory cannot be read, or is damaged.
        """
        config = self.config
        if "segment_bytes" in config.store:
            return self
        _, identity = inspect(config.data_dir)
        if identity is None:
            return self
        store = {**config.store, "segment_bytes": identity.segment_bytes}
        return Settings(
            dataclasses.replace(config, store=store),
            {**self.origins, "store.segment_bytes": Origin("store", str(config.data_dir))},
            self.retired,
        )


@dataclass(frozen=True)
class Sources:
    """The sources to read. `read` may be called again, since the file may have changed."""

    file: Path | None = None
    #: Values by name, such as `store.flush_mode`; they may be text.
    flags: Mapping[str, object] = field(default_factory=dict)
    #: Names of settings to the flags that they were given with, where that is not --set.
    options: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    def read(self) -> Settings:
        """Blocks. Raises InvalidArgumentError naming the setting, and its origin."""
        values: dict[str, object] = {}
        origins: dict[str, Origin] = {}
        retired: list[tuple[str, Origin]] = []
        for name, value, origin in self._given():
            if is_retired(name):
                retired.append((name, origin))
                continue
            try:
                known = known_setting(name)
                values[known.name] = converted(known, value)
            except InvalidArgumentError as error:
                raise _told(error, origin) from error
            origins[known.name] = origin
        tables: dict[str, dict[str, Any]] = {table: {} for table in TABLES}
        for name, value in values.items():
            tables[KNOWN[name].table][KNOWN[name].key] = value
        try:
            with in_table("server"):
                config = ServerConfig(**tables["server"], store=tables["store"])
            config.store_config(config.port)  # checks the store's
        except InvalidArgumentError as error:
            raise _told(error, origins.get(error.field, _DEFAULT)) from error
        return Settings(config, origins, tuple(retired))

    def _given(self) -> Iterator[tuple[str, object, Origin]]:
        """Yield name, value and origin of each, in ascending precedence."""
        if self.file is not None:
            origin = Origin("file", str(self.file))
            for name, value in _read_file(self.file).items():
                yield name, value, origin
        for variable, text in self.environment.items():
            found = name_of_variable(variable)
            if found is not None:
                yield found, text, Origin("environment", variable_of(found))
        for name, value in self.flags.items():
            yield name, value, Origin("flag", self.options.get(name, f"--set {name}"))


def _told(error: InvalidArgumentError, origin: Origin) -> InvalidArgumentError:
    """The error with the value's origin, where the operator would not know it."""
    if origin.kind not in ("file", "environment"):
        return error
    if isinstance(error, UnknownSettingError):
        error.args = (f"{error}, in {origin}",)
        return error
    return InvalidArgumentError(error.field, f"{error.reason}, in {origin}")


def _read_file(path: Path) -> dict[str, object]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise InvalidArgumentError(str(path), f"cannot be read: {why}") from error
    found: dict[str, object] = {}
    for table, entries in document.items():
        if table not in TABLES or not isinstance(entries, dict):
            known = " and ".join(f"[{one}]" for one in TABLES)
            raise InvalidArgumentError(
                f"{path}: {table}", f"is an unknown table; the tables are {known}"
            )
        for key, value in entries.items():
            found[f"{table}.{key}"] = value
    return found
