"""Seeds of tests that try their luck: the first few in `make test`, all in `make check`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet


def seeds(first: int, count: int) -> list[int | ParameterSet]:
    """The numbers below `count`. Tests with those from `first` on are slow ones."""
    later = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(first, count)]
    return [*range(first), *later]
