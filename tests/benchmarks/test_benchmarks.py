"""The benchmarks run, small, and say what they measured. Their figures mean nothing here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.benchmarks.__main__ import CASES
from tests.benchmarks.measure import Bench, Row

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", ["put-in-process", "put-grpc", "query", "replay", "many-queues"])
def test_case_gives_rows(tmp_path: Path, name: str) -> None:
    bench = Bench(tmp_path, scale=0.001, rounds=1)
    CASES[name](bench)
    assert bench.rows
    for row in bench.rows:
        assert row.value > 0 or row.unit == "MB"
        assert json.loads(json.dumps(row.document())) == row.document()


def test_ratio_is_that_of_value_and_probe() -> None:
    assert Row("w", 3.0, "u", "more", met=True, probe=4.0).ratio == 0.75
    assert Row("w", 3.0, "u", "more", met=True).ratio is None
