"""Parses and formats times; UTC by default."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_AGO = re.compile(r"-(\d{1,9}(?:\.\d+)?)([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_MOST_DIGITS = 19  # digits of a number of 63 bits
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment_ms(text: str, now_ms: int) -> int | None:
    """Parse `2026-01-31`, `2026-01-31T12:00`, `-90m`, `now`, or ms since 1970. Returns ms since
    1970.

    None for any other text. May be negative, or more than a request can hold.
    """
    if text == "now":
        return now_ms
    if ago := _AGO.fullmatch(text):
        return round(now_ms - float(ago[1]) * _SECONDS[ago[2]] * 1000)
    # With fewer digits it is no ms since 1970, but a date, or half of one.
    if text.isascii() and text.isdigit() and (9 < len(text) <= _MOST_DIGITS or text == "0"):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def time_text(time_ms: int) -> str:
    """UTC, to the millisecond; "-" for 0. A value outside the calendar stays a number."""
    if time_ms == 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(time_ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):  # a producer may say anything
        return f"{time_ms} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{time_ms % 1000:03d}Z"
