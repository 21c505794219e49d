"""What options may be: times and whole numbers."""

from __future__ import annotations

from time import time

import click
import pytest

from server.cli.terminal.values import COUNT, INT32_MAX, TIME, Whole


@pytest.mark.parametrize(
    ("typed", "wanted_ms"),
    [
        ("2026-01-31", 1_769_817_600_000),
        ("2026-01-31T12:00", 1_769_860_800_000),
        ("2026-01-31T12:00:00.250+02:00", 1_769_853_600_250),
        ("2026-01-31T12:00Z", 1_769_860_800_000),
        ("1769817600123", 1_769_817_600_123),
    ],
)
def test_times(typed: str, wanted_ms: int) -> None:
    assert TIME.convert(typed, None, None) == wanted_ms


@pytest.mark.parametrize(
    ("typed", "ago_s"),
    [("-90s", 90), ("-90m", 5400), ("-1.5h", 5400), ("-2d", 172_800), ("now", 0)],
)
def test_times_that_are_so_long_ago(typed: str, ago_s: int) -> None:
    before = time()
    found = TIME.convert(typed, None, None)
    assert before - ago_s - 0.001 <= found / 1000 <= time() - ago_s + 0.001


@pytest.mark.parametrize(
    "typed",
    ["", "soon", "-1w", "1h", "2026", "2026-13-01", "1960-01-01", "9" * 30, "-" + "9" * 9 + "d"],
)
def test_what_is_no_time_is_refused(typed: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a time such as"):
        TIME.convert(typed, None, None)


@pytest.mark.parametrize("typed", ["", "x", "1.5", "-1", "11", "9" * 5000])
def test_whole_numbers_name_their_bounds(typed: str) -> None:
    with pytest.raises(click.BadParameter, match=r"whole number|from 0 to 10"):
        Whole(0, 10).convert(typed, None, None)
    assert Whole(0, 10).convert("10", None, None) == 10


def test_one_row_more_than_the_most_fits_a_request() -> None:
    """`kvcq timers list --limit 2147483647` ended with a traceback."""
    with pytest.raises(click.BadParameter, match="is not from 1 to 2147483646"):
        COUNT.convert(str(INT32_MAX), None, None)
    assert COUNT.convert(str(INT32_MAX - 1), None, None) + 1 == INT32_MAX
