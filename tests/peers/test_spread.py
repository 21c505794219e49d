"""Median and spread, and that nothing is printed without."""

from __future__ import annotations

import pytest

from tests.peers.spread import NoSpreadError, short, spread_of


def test_spread_is_the_median_with_the_lowest_and_the_highest() -> None:
    assert spread_of([3.0, 1.0, 2.0]).text() == "2 (1 to 3)"


def test_one_round_has_no_spread() -> None:
    with pytest.raises(NoSpreadError, match="at least 2 rounds"):
        spread_of([1.0])


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.01234, "0.0123"), (12.345, "12.3"), (999.4, "999"), (113_456, "113,000")],
)
def test_three_digits_count(value: float, text: str) -> None:
    assert short(value) == text
