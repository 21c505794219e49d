"""kvcq bench, as it is typed."""

from __future__ import annotations

import json
import tempfile
from typing import TYPE_CHECKING

from kvcq_bench.targets.embedded import EmbeddedTarget
from tests.support.command_line import kvcq

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from kvcq_client import Pulled, Queue


def test_list_names_the_scenarios() -> None:
    result = kvcq("bench", "list")
    assert result.exit_code == 0
    assert "A million topics" in result.stdout
    listed = json.loads(kvcq("bench", "list", "--json").stdout)
    assert {"name": "2-topics", "title": "A million topics"} in listed["scenarios"]


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


FILES = """
name = "file-against-kv"
title = "Two queues"
kind = "file-against-kv"
seed = 7
[store]
segment_bytes = 1048576
[parameters]
counts = [2]
messages_a_queue = 3
"""

PULLS = """
name = "compaction"
title = "A few pulls"
kind = "compaction"
seed = 10
[store]
segment_bytes = 1048576
[parameters]
queues = 50
units = 500
seconds = 0.05
max_seconds = 0.05
fan_out = 50
"""


def test_run_writes_reports_that_compare(tmp_path: Path) -> None:
    scenario = tmp_path / "few.toml"
    scenario.write_text(SCENARIO)
    for run in ("one", "other"):
        arguments = ["bench", "run", str(scenario), "--scale", "0.001", "--json"]
        arguments += ["--embedded", str(tmp_path / run), "--report", str(tmp_path / f"{run}-r")]
        result = kvcq(*arguments)
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["nothingLost"] is True
        assert (tmp_path / f"{run}-r.html").stat().st_size > 1000
    reports = [str(tmp_path / "one-r.json"), str(tmp_path / "other-r.json")]
    page = tmp_path / "both.html"
    result = kvcq("bench", "compare", *reports, "--html", str(page))
    assert result.exit_code == 0, result.output
    assert "first_messages_per_s" in result.stdout
    assert "two runs" in page.read_text()


def test_a_loss_ends_with_1_says_what_is_missing_and_keeps_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: every pull gives back one message fewer than it should."""
    pull = EmbeddedTarget.pull

    def forgetful(target: EmbeddedTarget, queue: Queue, offset: int, max_messages: int) -> Pulled:
        pulled = pull(target, queue, offset, max_messages)
        return pulled._replace(messages=pulled.messages[1:])

    monkeypatch.setattr(EmbeddedTarget, "pull", forgetful)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    scenario = tmp_path / "files.toml"
    scenario.write_text(FILES)
    for command in (["run", str(scenario)], ["all", "--only", str(scenario)]):
        reports = ["--report" if command[0] == "run" else "--reports", str(tmp_path / "r")]
        result = kvcq("bench", *command, *reports)
        assert result.exit_code == 1
        text = " ".join(result.stderr.split())
        assert "not what was acknowledged: stream 0: number 1 where 0 was due" in text
        assert "messages are missing" in text
        assert "the store is kept" in text
        assert "kvcq check" in text
    assert len(list(tmp_path.glob("kvcq-bench-*/files-2/store/commitlog"))) == 2
    assert not list(tmp_path.glob("r*"))


def test_all_writes_reports_and_summary_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    scenario = tmp_path / "pulls.toml"
    scenario.write_text(PULLS)
    reports = tmp_path / "reports"
    arguments = ["bench", "all", "--only", str(scenario), "--reports", str(reports), "--json"]
    result = kvcq(*arguments)
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert [line["wanted"] for line in document["lines"]] == ["at most 3"]
    assert document["failed"] == []
    assert not list(tmp_path.glob("kvcq-bench-*")), "the store is removed"
    result = kvcq("bench", "summary", str(reports), "--markdown")
    assert result.exit_code == 0, result.output
    assert "| work | measured | wanted |" in result.stdout
    assert "nothing lost" in result.stdout
    assert kvcq("bench", "summary", str(scenario)).exit_code == 2


def test_what_is_wrong_is_said() -> None:
    result = kvcq("bench", "run", "absent")
    assert result.exit_code == 2  # wrong usage
    assert "no scenario 'absent'" in result.output
    both = ["bench", "run", "1", "--server", "a:1", "--embedded", "b"]
    assert kvcq(*both).exit_code == 2
    unread = kvcq("bench", "compare", "absent.json", "absent.json")
    assert unread.exit_code == 2
    assert "absent.json cannot be read" in unread.output


def test_a_server_that_is_not_there_is_told_at_once() -> None:
    result = kvcq("bench", "run", "1", "--server", "127.0.0.1:1")
    assert result.exit_code == 3
    assert "cannot reach a server at 127.0.0.1:1" in result.stderr
