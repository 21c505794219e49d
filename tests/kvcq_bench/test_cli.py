"""kvcq bench, as it is typed."""

from __future__ import annotations

import json
import tempfile
from typing import TYPE_CHECKING

import pytest

from kvcq_bench.targets.embedded import EmbeddedTarget
from tests.support.command_line import kvcq

if TYPE_CHECKING:
    from pathlib import Path

    from kvcq_client import Pulled, Queue


def test_list_names_the_scenarios() -> None:
    result = kvcq("bench", "list")
    assert result.exit_code == 0
    assert "A million topics" in result.stdout
    listed = json.loads(kvcq("bench", "list", "--json").stdout)
    assert {"name": "2-topics", "title": "A million topics"} in listed


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

GOAL = """
[[goals]]
figure = "put, rocksdb, 2 queues"
at_least = 1
reason = "because it can"
"""


@pytest.mark.slow
def test_run_writes_reports_that_compare(tmp_path: Path) -> None:
    scenario = tmp_path / "few.toml"
    scenario.write_text(SCENARIO)
    for run in ("one", "other"):
        arguments = ["bench", "run", str(scenario), "--scale", "0.001", "--json"]
        arguments += ["--embedded", str(tmp_path / run), "--reports", str(tmp_path / f"{run}-r")]
        with pytest.MonkeyPatch.context() as patch:
            # The page of both, below, is drawn; each figure takes a tenth of a second.
            patch.setattr("kvcq_bench.report.html_page.plots", lambda *_: [])
            result = kvcq(*arguments)
        assert result.exit_code == 0, result.output
        (report,) = json.loads(result.stdout)["reports"]
        assert report["nothingLost"] is True
        assert (tmp_path / f"{run}-r" / "bench-topics.html").stat().st_size > 1000
    page = tmp_path / "both.html"
    reports = [str(tmp_path / "one-r"), str(tmp_path / "other-r" / "bench-topics.json")]
    result = kvcq("bench", "report", *reports, "--html", str(page))
    assert result.exit_code == 0, result.output
    assert "first messages, 5 topics" in result.stdout
    assert "messages/s" in result.stdout
    assert "ratio" in result.stdout
    assert page.read_text().count("A few topics</h1>") == 2


def test_rounds_are_in_one_report_with_the_goals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    scenario = tmp_path / "files.toml"
    scenario.write_text(FILES + GOAL)
    reports = str(tmp_path / "reports")
    arguments = ["bench", "run", str(scenario), "--rounds", "2", "--json", "--reports", reports]
    result = kvcq(*arguments)
    assert result.exit_code == 0, result.output
    (report,) = json.loads(result.stdout)["reports"]
    assert [one["round"] for one in report["results"]] == [0, 1]
    (outcome,) = report["outcomes"]
    assert (outcome["wanted"], outcome["verdict"]) == ("at least 1 messages/s", "met")
    assert not list(tmp_path.glob("kvcq-bench-*")), "the store is removed"
    result = kvcq("bench", "report", reports)
    assert result.exit_code == 0, result.output
    assert "1 of 1 goals met" in result.stdout + result.stderr
    assert "because it can" in " ".join(result.stdout.split())
    assert kvcq("bench", "report", str(scenario)).exit_code == 2


def test_a_loss_ends_with_1_says_what_is_missing_and_keeps_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: every pull gives back one message fewer than it should. The others still run."""
    pull = EmbeddedTarget.pull

    def forgetful(target: EmbeddedTarget, queue: Queue, offset: int, max_messages: int) -> Pulled:
        pulled = pull(target, queue, offset, max_messages)
        return pulled._replace(messages=pulled.messages[1:])

    monkeypatch.setattr(EmbeddedTarget, "pull", forgetful)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    names = []
    for name in ("one", "other"):
        names.append(str(tmp_path / f"{name}.toml"))
        (tmp_path / f"{name}.toml").write_text(FILES.replace("file-against-kv", name, 1))
    result = kvcq("bench", "run", *names, "--reports", str(tmp_path / "r"))
    assert result.exit_code == 1
    text = " ".join(result.stderr.split())
    for name in ("one", "other"):
        what = "acknowledged messages are missing or different"
        wanted = f"{name}: {what}: stream 0: number 1 where 0 was due"
        assert wanted in text
    assert "messages are missing" in text
    assert "the store was kept" in text
    assert "kvcq check" in text
    assert len(list(tmp_path.glob("kvcq-bench-*/files-2/store/commitlog"))) == 2
    assert not list(tmp_path.glob("r*"))


def test_what_is_wrong_is_said() -> None:
    result = kvcq("bench", "run", "absent")
    assert result.exit_code == 2  # wrong usage
    assert "no scenario 'absent'" in result.output
    both = ["bench", "run", "1", "--server", "a:1", "--embedded", "b"]
    assert kvcq(*both).exit_code == 2
    for more in (["--rounds", "2"], ["2"]):
        refused = kvcq("bench", "run", "1", *more, "--data", "d")
        assert refused.exit_code == 2
        assert "one SCENARIO and one round" in " ".join(refused.output.split())
    unread = kvcq("bench", "report", "absent.json")
    assert unread.exit_code == 2
    assert "absent.json cannot be read" in unread.output


def test_a_server_that_is_not_there_is_told_at_once() -> None:
    result = kvcq("bench", "run", "1", "--server", "127.0.0.1:1")
    assert result.exit_code == 3
    assert "cannot reach a server at 127.0.0.1:1" in result.stderr
