"""Formats and parses amounts, and words of the API, for people."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_BYTES = (
    {f"{letter}iB": 1 << 10 * at for at, letter in reversed([*enumerate("KMGT", 1)])}
    | {f"{letter}B": 1000**at for at, letter in enumerate("kMGT", 1)}
    | {"": 1, "B": 1}
)
_AMOUNT = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)([A-Za-z]*)")


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


def span_ms(text: str) -> int | None:
    """A duration such as `90m`, `36h` or `7d` in ms, or 0; None for any other text."""
    return _amount(text, _MS)


def size_bytes(text: str) -> int | None:
    """A size such as `10GiB`, `500MB` or `4096` in bytes; None for any other text."""
    return _amount(text, _BYTES)


def span_text(ms: int) -> str:
    """The shortest text that `span_ms` parses to exactly this: `36h`, `90m`, `7d`."""
    return _shortest(ms, _MS)


def size_text(size: int) -> str:
    """The shortest text that `size_bytes` parses to exactly this: `10GiB`, `4097`."""
    return _shortest(size, {name: scale for name, scale in _BYTES.items() if name != "B"})


def _amount(text: str, units: Mapping[str, int]) -> int | None:
    if text == "0":
        return 0
    found = _AMOUNT.fullmatch(text)
    scale = None if found is None else units.get(found[2])
    return None if found is None or scale is None else round(float(found[1]) * scale)


def _shortest(amount: int, units: Mapping[str, int]) -> str:
    exact = (f"{amount // scale}{name}" for name, scale in units.items() if not amount % scale)
    return min(exact, key=len) if amount else "0"


def split_address(text: str) -> tuple[str, int] | None:
    """Host and port from the format of `address`; None for another text."""
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        return None
    if not host or not host.isprintable() or " " in host or not re.fullmatch(r"[0-9]{1,5}", port):
        return None
    return (host, int(port)) if 0 < int(port) < 1 << 16 else None


def address(host: str, port: int) -> str:
    """The format for options: `127.0.0.1:8081`, `[::1]:8081`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def whole_number(text: str, most: int) -> int | None:
    """A number from 0 to `most`, in decimal digits; None for any other text, of any length."""
    if len(text) <= len(str(most)) and text.isascii() and text.isdecimal() and int(text) <= most:
        return int(text)
    return None


def word_of(kind: EnumTypeWrapper, number: int) -> str:
    """A value of an API enum without the enum's prefix: `RUNNING`; empty for 0."""
    return (
        kind.Name(number).removeprefix(kind.Name(0).removesuffix("UNSPECIFIED")) if number else ""
    )
