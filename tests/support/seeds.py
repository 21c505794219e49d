"""Seeds of tests that try their luck: the first few in `make test`, all in `make check`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet


def fewer(few: int, many: int) -> list[int | ParameterSet]:
    """Of how many, or how far apart: `few` in `make test`, `many` of the same by a slow test."""
    return [few, pytest.param(many, marks=pytest.mark.slow)]


def seeds(first: int, count: int) -> list[int | ParameterSet]:
    """The numbers below `count`. Tests with those from `first` on are slow ones."""
    later = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(first, count)]
    return [*range(first), *later]
