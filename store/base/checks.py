"""Checks that a caller's number is in its range."""

from __future__ import annotations

from store.errors import InvalidArgumentError


def check_within(field: str, value: int, least: int, most: int) -> None:
    """Raises InvalidArgumentError, naming the field, unless least <= value <= most."""
    if not least <= value <= most:
        raise InvalidArgumentError(field, f"{value} is outside {least} to {most}")


def check_time_within(field: str, value_ms: int, least_ms: int, most_ms: int) -> None:
    """Like `check_within`, for a time in ms. The error gives it in the largest unit that fits."""
    if not least_ms <= value_ms <= most_ms:
        value, least, most = map(_time_text, (value_ms, least_ms, most_ms))
        raise InvalidArgumentError(field, f"{value} is outside {least} to {most}")


def _time_text(ms: int) -> str:
    units = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))
    fits = (f"{ms // length} {unit}" for unit, length in units if ms % length == 0)
    return next(fits, f"{ms} ms") if ms else "0"
