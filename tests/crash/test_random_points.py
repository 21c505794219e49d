"""Loads over kills and losses of power at points chosen at random; see tests/crash/loads."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.crash.loads.killing import LOADS, kill_at_random
from tests.support.seeds import seeds

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.crash

#: The soak has SOAK_SEEDS=500: without it, thousands of tests would be collected to be left out.
FEW, MORE, MANY = 1, 6, int(os.environ.get("SOAK_SEEDS", "0"))
SEEDS = [
    *seeds(FEW, MORE),
    *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(MORE, MANY)),
]


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("seed", SEEDS)
def test_kills(tmp_path: Path, load: str, seed: int) -> None:
    kill_at_random(tmp_path, load, seed)


@pytest.mark.slow  # tests of single rooms lose power in `make test`
@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("seed", SEEDS)
def test_losses_of_power(tmp_path: Path, load: str, seed: int) -> None:
    kill_at_random(tmp_path, load, seed, power=True)
