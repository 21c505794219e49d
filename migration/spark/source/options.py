"""Parses and validates options of data sources. Names are case-insensitive."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from migration.spark.errors import SourceOptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType


#: Options that Spark itself adds.
_SPARKS = {"path", "checkpointlocation", "queryname"}


class Options:
    """The options of one data source. Raises SourceOptionError, naming the option."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._given = dict(options)
        self._values = {name.lower(): value for name, value in options.items()}
        # Options read so far: lower case to the usual spelling.
        self._known: dict[str, str] = {}

    def _get(self, name: str) -> str | None:
        self._known[name.lower()] = name
        return self._values.get(name.lower())

    def refuse_others(self) -> None:
        """Raise for options that were not read: they are mistakes."""
        for name in self._given:
            if name.lower() not in self._known.keys() | _SPARKS:
                near = get_close_matches(name.lower(), self._known, n=1)
                known = self._known[near[0]] if near else ", ".join(self._known.values())
                raise SourceOptionError(name, f"is unknown; there is {known}")

    def text(self, name: str, default: str | None = None) -> str:
        value = self._get(name) or default
        if not value:
            raise SourceOptionError(name, "is required")
        return value

    def maybe_text(self, name: str) -> str | None:
        return self._get(name) or None

    def choice(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        value = self._get(name) or default
        if value not in choices:
            raise SourceOptionError(name, f"{value!r} is none of {', '.join(choices)}")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        value = (self._get(name) or str(default)).lower()
        if value not in ("true", "false"):
            raise SourceOptionError(name, f"{value!r} is neither true nor false")
        return value == "true"

    def whole(self, name: str, default: int) -> int:
        """The option as a whole number; raises SourceOptionError if it is not 0 or more."""
        value = self.maybe_whole(name)
        return default if value is None else value

    def maybe_whole(self, name: str) -> int | None:
        value = self._get(name)
        if value is None:
            return None
        if not (value.isascii() and value.isdigit()):
            raise SourceOptionError(name, f"{value!r} is not a whole number of 0 or more")
        return int(value)

    def maybe_count(self, name: str) -> int | None:
        """Like `count`, but None if the option is not set."""
        value = self.maybe_whole(name)
        if value == 0:
            raise SourceOptionError(name, "is 0, and must be 1 or more")
        return value

    def count(self, name: str, default: int) -> int:
        """The option as a whole number; raises SourceOptionError if it is not 1 or more."""
        return self.maybe_count(name) or default


def wanted_columns(schema: StructType, known: pa.Schema, source: str) -> pa.Schema:
    """The Arrow schema that Spark expects, with columns that the source has.

    Raises SourceOptionError.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    wanted = to_arrow_schema(schema, timezone="UTC")
    for field in wanted:
        if field.name not in known.names:
            raise SourceOptionError("schema", f"{source} has no column {field.name!r}")
        if field.type != known.field(field.name).type:
            right = known.field(field.name).type
            raise SourceOptionError("schema", f"column {field.name!r} is {right}, not {field.type}")
    return wanted
