"""Checks the numbers and switches among settings: type, finite, within bounds.

One check for all fields of a settings class, so that none is forgotten. A number without bounds of
its own must be from 0 to 2**53.
"""

from __future__ import annotations

import dataclasses
from math import isfinite
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    #: The least and the most that a setting may be, both included.
    Bounds = tuple[float, float]

_OTHERWISE = (0, 1 << 53)
#: Unit by the end of a setting's name.
_UNITS = {"ms": " ms", "s": " s", "bytes": " bytes", "hours": " hours"}


def numbers(settings: Any, bounds: Mapping[str, Bounds]) -> Iterator[tuple[str, bool, Bounds]]:  # noqa: ANN401 - a dataclass, or an instance
    """Yield the name, whether it is a whole number, and the bounds of each field whose default is a
    number."""
    for field in dataclasses.fields(settings):
        if isinstance(field.default, int | float) and not isinstance(field.default, bool):
            whole = isinstance(field.default, int)
            yield field.name, whole, bounds.get(field.name, _OTHERWISE)


def check_settings(
    settings: Any,  # noqa: ANN401 - an instance of a dataclass
    bounds: Mapping[str, Bounds],
    error: Callable[[str, str], Exception],
) -> None:
    """Raise `error(name, reason)` for the first field with an invalid value."""
    for name, whole, (least, most) in numbers(settings, bounds):
        value = getattr(settings, name)
        kinds = (int,) if whole else (int, float)
        is_number = isinstance(value, kinds) and not isinstance(value, bool)
        if not is_number or not isfinite(value) or not least <= value <= most:
            kind = "a whole number" if whole else "a number"
            unit = _UNITS.get(name.rpartition("_")[2], "")
            bounds_text = f"from {_text(least)} to {_text(most)}{unit}"
            raise error(name, f"{value!r} is not {kind} {bounds_text}")
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if isinstance(field.default, bool) and not isinstance(value, bool):
            raise error(field.name, f"{value!r} is neither true nor false")


def _text(number: float) -> str:
    return str(number) if isinstance(number, int) else f"{number:f}".rstrip("0").rstrip(".")
