"""Disk levels, and when puts are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store.config import StoreConfig
from store.errors import DiskFullError
from store.log.disk import DiskGuard, DiskLevel, used_ratio

if TYPE_CHECKING:
    from pathlib import Path


class Gauge:
    """A disk as full as the test says."""

    def __init__(self) -> None:
        self.ratio = 0.0
        self.error: OSError | None = None

    def __call__(self, path: Path) -> float:
        if self.error is not None:
            raise self.error
        return self.ratio


@pytest.fixture
def gauge() -> Gauge:
    return Gauge()


@pytest.fixture
def guard(tmp_path: Path, gauge: Gauge) -> DiskGuard:
    return DiskGuard(tmp_path, StoreConfig(root=tmp_path), gauge)


def test_real_disk_has_a_ratio(tmp_path: Path) -> None:
    assert 0 < used_ratio(tmp_path) <= 1


@pytest.mark.parametrize(
    ("ratio", "level"),
    [
        (0.0, DiskLevel.NORMAL),
        (0.75, DiskLevel.NORMAL),
        (0.7501, DiskLevel.CLEAN),
        (0.85, DiskLevel.CLEAN),
        (0.8501, DiskLevel.CLEAN_FORCIBLY),
        (0.90, DiskLevel.CLEAN_FORCIBLY),
        (0.9001, DiskLevel.FULL),
        (1.0, DiskLevel.FULL),
    ],
)
def test_level_begins_above_its_limit(
    guard: DiskGuard, gauge: Gauge, ratio: float, level: DiskLevel
) -> None:
    gauge.ratio = ratio
    assert guard.measure() is level


def test_puts_are_refused_until_the_disk_is_well_below(guard: DiskGuard, gauge: Gauge) -> None:
    refused = []
    for gauge.ratio in (0.5, 0.89, 0.91, 0.89, 0.86, 0.85, 0.89, 0.95, 0.2):
        guard.measure()
        refused.append(guard.refuses_puts)
    assert refused == [False, False, True, True, True, False, False, True, False]


def test_refusal_names_path_and_percentages(guard: DiskGuard, gauge: Gauge, tmp_path: Path) -> None:
    guard.check_put()
    gauge.ratio = 0.934
    guard.measure()
    with pytest.raises(DiskFullError) as caught:
        guard.check_put()
    for part in (str(tmp_path), "93.4%", "90.0%", "85.0%"):
        assert part in str(caught.value)


def test_disk_that_cannot_be_asked_keeps_its_level(
    guard: DiskGuard, gauge: Gauge, caplog: pytest.LogCaptureFixture
) -> None:
    gauge.ratio = 0.95
    guard.measure()
    gauge.error = OSError(5, "planted")
    assert guard.measure() is DiskLevel.FULL
    assert guard.refuses_puts
    assert "planted" in caplog.text
