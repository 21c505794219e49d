"""A report comes back from disk as it was, and another file is refused."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest

from kvcq_bench.errors import ScenarioError
from kvcq_bench.report import Figure, Goal, Report, Result, read_report, write_report

if TYPE_CHECKING:
    from pathlib import Path

_COURSE = {
    "samples": [{"at_s": 1.0, "a": 2.0}, {"at_s": 2.0, "b": 3.0}],
    "points": [],
    "notes": ["a note"],
}


def _report() -> Report:
    result = Result("kvcq", "put", 0, {"rate": Figure(5.0, "messages/s")}, _COURSE)
    machine = {"processor": "abacus", "time": "2026-11-22"}
    goals = [Goal("put", 4, "why")]
    return Report("A title", machine, {}, {"scale": 1.0}, {"kvcq": "kvcq"}, [], goals, [result])


@pytest.mark.parametrize("name", ["kept.json", "below/kept.json.gz"])
def test_report_comes_back_from_disk(tmp_path: Path, name: str) -> None:
    write_report(_report(), tmp_path / name)
    assert read_report(tmp_path / name) == _report()


def test_same_report_is_the_same_compressed_file(tmp_path: Path) -> None:
    for name in ("one.json.gz", "other.json.gz"):
        write_report(_report(), tmp_path / name)
    assert (tmp_path / "one.json.gz").read_bytes() == (tmp_path / "other.json.gz").read_bytes()


@pytest.mark.parametrize(
    ("name", "data", "complaint"),
    [
        ("absent.json", None, "cannot be read"),
        ("broken.json", b"{", "cannot be read"),
        ("cut.json.gz", gzip.compress(b"{}", mtime=0)[:-4], "cannot be read"),
        ("list.json", b"[]", "not a report of this version"),
        ("older.json", b'{"format": 2}', "not a report of this version"),
    ],
)
def test_what_is_no_report_is_refused(
    tmp_path: Path, name: str, data: bytes | None, complaint: str
) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(ScenarioError, match=complaint):
        read_report(tmp_path / name)
