"""The client's types of a migration as plain values, for `--json` and for tables."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from server.cli.terminal import camel_case


def plain(value: Any) -> dict[str, Any]:  # noqa: ANN401 - any of the dataclasses
    """All fields of a dataclass for JSON: names in camelCase, enums by name, None for absent values
    and empty texts."""
    found = {each.name: _plain_value(getattr(value, each.name)) for each in fields(value)}
    document: dict[str, Any] = camel_case(found)
    return document


def _plain_value(value: Any) -> Any:  # noqa: ANN401 - any field's, of any kind
    if isinstance(value, tuple):
        return [_plain_value(each) for each in value]
    if isinstance(value, Enum):
        return value.name
    if is_dataclass(value):
        return plain(value)
    return None if value == "" else value
