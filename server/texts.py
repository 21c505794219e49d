"""Amounts, and words of the API, as people write and read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def duration(seconds: float) -> str:
    """The two largest units that are not 0: `3 d 4 h`, `4 h`, `5 min 6 s`, `0 s`."""
    left = max(0, int(seconds))
    parts: list[str] = []
    for name, length in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, length)
        if count or (name == "s" and not parts):
            parts.append(f"{count} {name}")
    return " ".join(parts[:2])


def byte_count(count: float) -> str:
    """In the unit that leaves few digits: `0 B`, `1.5 MiB`."""
    unit = 0
    while abs(count) >= 1024 and unit < len(_UNITS) - 1:
        count /= 1024
        unit += 1
    return f"{count:,.0f} B" if unit == 0 else f"{count:,.1f} {_UNITS[unit]}"


def whole_number(text: str, most: int) -> int | None:
    """A number from 0 to `most`, in decimal digits; None for any other text, however long."""
    if len(text) <= len(str(most)) and text.isascii() and text.isdecimal() and int(text) <= most:
        return int(text)
    return None


def word_of(kind: EnumTypeWrapper, number: int) -> str:
    """A value of an enum of the API without the enum's name before it: `RUNNING`; 0 has none."""
    return (
        kind.Name(number).removeprefix(kind.Name(0).removesuffix("UNSPECIFIED")) if number else ""
    )
