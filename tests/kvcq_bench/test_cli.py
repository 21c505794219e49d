"""kvcq bench, as it is typed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from click.testing import CliRunner

from server.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path


def test_list_names_the_scenarios() -> None:
    result = CliRunner().invoke(main, ["bench", "list"])
    assert result.exit_code == 0
    assert "A million topics" in result.stdout


SCENARIO = """
name = "topics"
title = "A few topics"
kind = "topics"
seed = 2
[store]
segment_bytes = 1048576
[parameters]
counts = [5, 50]
traffic_messages = 100
sample_queues = 5
"""


def test_run_writes_reports_that_compare(tmp_path: Path) -> None:
    scenario = tmp_path / "few.toml"
    scenario.write_text(SCENARIO)
    for run in ("one", "other"):
        arguments = ["bench", "run", str(scenario), "--scale", "0.9", "--json"]
        arguments += ["--embedded", str(tmp_path / run), "--report", str(tmp_path / f"{run}-r")]
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["nothing_lost"] is True
        assert (tmp_path / f"{run}-r.html").stat().st_size > 1000
    reports = [str(tmp_path / "one-r.json"), str(tmp_path / "other-r.json")]
    page = tmp_path / "both.html"
    result = CliRunner().invoke(main, ["bench", "compare", *reports, "--html", str(page)])
    assert result.exit_code == 0, result.output
    assert "first_messages_per_s" in result.stdout
    assert "two runs" in page.read_text()


def test_what_is_wrong_is_said() -> None:
    result = CliRunner().invoke(main, ["bench", "run", "absent"])
    assert result.exit_code == 2  # wrong usage
    assert "no scenario 'absent'" in result.output
    both = ["bench", "run", "1", "--target", "a:1", "--embedded", "b"]
    assert CliRunner().invoke(main, both).exit_code == 2
