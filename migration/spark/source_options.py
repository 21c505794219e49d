"""Options of data sources: text in, checked values out. Names are matched without case."""

from __future__ import annotations

from typing import TYPE_CHECKING

from migration.spark.errors import SourceOptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType


class Options:
    """The options of one data source. Raises SourceOptionError, naming the option."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._values = {name.lower(): value for name, value in options.items()}

    def text(self, name: str, default: str | None = None) -> str:
        value = self._values.get(name.lower(), default)
        if not value:
            raise SourceOptionError(name, "is required")
        return value

    def maybe_text(self, name: str) -> str | None:
        return self._values.get(name.lower()) or None

    def choice(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        value = self._values.get(name.lower(), default)
        if value not in choices:
            raise SourceOptionError(name, f"{value!r} is none of {', '.join(choices)}")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        value = self._values.get(name.lower(), str(default)).lower()
        if value not in ("true", "false"):
            raise SourceOptionError(name, f"{value!r} is neither true nor false")
        return value == "true"

    def whole(self, name: str, default: int) -> int:
        """A whole number, 0 or more."""
        value = self.maybe_whole(name)
        return default if value is None else value

    def maybe_whole(self, name: str) -> int | None:
        value = self._values.get(name.lower())
        if value is None:
            return None
        if not (value.isascii() and value.isdigit()):
            raise SourceOptionError(name, f"{value!r} is no whole number of 0 or more")
        return int(value)


def wanted_columns(schema: StructType, known: pa.Schema, source: str) -> pa.Schema:
    """The Arrow schema that Spark expects, each column one that the source has.

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
