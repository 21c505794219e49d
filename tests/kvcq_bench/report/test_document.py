"""A report is on disk what it was in memory."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

from kvcq_bench.errors import ScenarioError
from kvcq_bench.report.document import FORMAT, read_report, write_report

if TYPE_CHECKING:
    from pathlib import Path

DOCUMENT: dict[str, Any] = {
    "format": FORMAT,
    "samples": [{"at_s": 1.0, "put": 5}, {"at_s": 2.0}, {"at_s": 3.0, "put": 0, "later": 1}],
    "points": [],
}


def test_rows_are_written_as_columns_and_read_as_rows(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.json"
    write_report(DOCUMENT, path)
    columns = {"at_s": [1.0, 2.0, 3.0], "put": [5, None, 0], "later": [None, None, 1]}
    assert json.loads(path.read_text())["samples"] == columns
    assert read_report(path) == DOCUMENT


def test_a_compressed_report_is_read(tmp_path: Path) -> None:
    write_report(DOCUMENT, tmp_path / "a.json")
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress((tmp_path / "a.json").read_bytes()))
    assert read_report(path) == DOCUMENT


@pytest.mark.parametrize("cut", [0, 1, 12, -5])
def test_a_torn_one_is_refused(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(json.dumps(DOCUMENT).encode())[:cut])
    with pytest.raises(ScenarioError, match="cannot be read"):
        read_report(path)


def test_one_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({**DOCUMENT, "format": FORMAT - 1}))
    with pytest.raises(ScenarioError, match="no report of this version"):
        read_report(path)
