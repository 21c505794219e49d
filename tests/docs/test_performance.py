"""What the docs say of speed is what the kept reports say."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs import performance

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def in_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def test_the_plot_is_of_the_kept_reports() -> None:
    assert performance.PLOT.read_text(encoding="utf-8") == performance.plot()


def test_the_tables_are_of_the_kept_reports() -> None:
    kept = performance.PAGE.read_text(encoding="utf-8")
    assert kept.count("<!-- generated: ") == kept.count("<!-- end -->") > 4
    assert performance.page(kept) == kept
