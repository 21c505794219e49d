"""The table of many reports: its figures are those of the files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from kvcq_bench.errors import ScenarioError
from kvcq_bench.report.document import FORMAT
from kvcq_bench.report.summary import met_text, summarise

if TYPE_CHECKING:
    from pathlib import Path

KILL: dict[str, Any] = {
    "format": FORMAT,
    "scenario": "kill",
    "title": "A kill | under load",
    "seed": 9,
    "scale": 1.0,
    "target": "own server process",
    "duration_s": 12.3,
    "machine": {"time": "2026-01-01T00:00:00+00:00"},
    "figures": {"ready_after_kill_s": 12.5},
    "counters": {"put": 4000, "read_back": 3000, "pulled": 1000},
}
BENCH: dict[str, Any] = {
    "scale": 1.0,
    "rows": [
        {
            "work": "pull",
            "value": 300_000.0,
            "unit": "messages/s",
            "wanted": "250,000/s",
            "met": True,
            "probe": 600_000.0,
            "probe_of": "echo",
            "ratio": 0.5,
        }
    ],
}


def test_reports_of_both_kinds_become_lines(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(KILL))
    (tmp_path / "b.json").write_text(json.dumps(BENCH))
    made = summarise([tmp_path])
    assert [(line.measured, line.met) for line in made.lines] == [(12.5, False), (300_000.0, True)]
    assert made.lines[0].command == "kvcq bench run kill"
    assert met_text(made.lines) == "1 of 2 met"
    assert met_text([]) == "nothing that was measured has a goal"
    assert "4,000 messages acknowledged, 4,000 reads checked" in made.runs[0]
    assert json.loads(json.dumps(made.document()))["lines"][1]["probe"] == 600_000.0


@pytest.mark.parametrize("wanted", ["none", "no bound"])
def test_a_figure_without_a_goal_is_neither_met_nor_missed(tmp_path: Path, wanted: str) -> None:
    row = {**BENCH["rows"][0], "wanted": wanted}
    (tmp_path / "b.json").write_text(json.dumps({**BENCH, "rows": [*BENCH["rows"], row]}))
    made = summarise([tmp_path])
    assert [line.verdict for line in made.lines] == ["met", ""]
    assert met_text(made.lines) == "1 of 1 met"
    assert f"| {wanted} |  |" in made.markdown()


def test_markdown_has_a_row_for_each_line_and_escapes_bars(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(KILL))
    (tmp_path / "b.json").write_text(json.dumps(BENCH))
    text = summarise([tmp_path / "a.json", tmp_path / "b.json"]).markdown()
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == 3
    assert "| 12.5 s | at most 10 s | **missed** |" in rows[1]
    assert "0.50 of 600,000: echo" in rows[2]
    assert "A kill \\| under load" in text


def test_what_is_no_report_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[]")
    with pytest.raises(ScenarioError, match="no report"):
        summarise([tmp_path / "a.json"])
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(ScenarioError, match="cannot be read"):
        summarise([tmp_path])


def test_a_small_run_is_told_but_not_judged(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({**KILL, "scale": 0.5}))
    made = summarise([tmp_path])
    assert made.lines == []
    assert "scale 0.5" in made.runs[0]


def test_a_directory_without_reports_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="no report"):
        summarise([tmp_path])
