"""Times as text, both ways; what the command line takes is tested with its options."""

from __future__ import annotations

import pytest

from server.moments import moment_ms, time_text

NOW_MS = 1_769_860_800_000


@pytest.mark.parametrize(
    ("text", "wanted_ms"),
    [
        ("now", NOW_MS),
        ("-1h", NOW_MS - 3_600_000),
        ("2026-01-31T12:00", NOW_MS),
        ("1769860800000", NOW_MS),
        ("0", 0),
        ("9" * 20, None),
        ("9" * 5000, None),
        ("soon", None),
    ],
)
def test_text_to_time(text: str, wanted_ms: int | None) -> None:
    assert moment_ms(text, NOW_MS) == wanted_ms


@pytest.mark.parametrize(
    ("time_ms", "wanted"),
    [
        (0, "-"),
        (NOW_MS + 7, "2026-01-31 12:00:00.007Z"),
        (1 << 62, f"{1 << 62} ms"),
        (-(1 << 62), f"{-(1 << 62)} ms"),
    ],
)
def test_time_to_text(time_ms: int, wanted: str) -> None:
    assert time_text(time_ms) == wanted
