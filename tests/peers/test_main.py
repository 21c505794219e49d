"""The command line: what is kept, what is printed, what is refused before anything is measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.peers import __main__ as command
from tests.peers.fake import FailingClient, fake_system
from tests.peers.report import read

if TYPE_CHECKING:
    from pathlib import Path

    from tests.peers.systems.protocol import System


def run(monkeypatch: pytest.MonkeyPatch, out: Path, systems: list[System], *more: str) -> int:
    monkeypatch.setattr(command, "SYSTEMS", systems)
    names = [system.name for system in systems]
    flags = ["--scale", "0", "--rounds", "2", "--no-cold", "--out", str(out)]
    monkeypatch.setattr("sys.argv", ["peers", *names, *flags, *more])
    return command.main()


def test_keeps_each_round_and_prints_what_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    systems = [fake_system("kvcq"), fake_system("absent", missing="apt-get install absent-server")]
    out = tmp_path / "peers.json.gz"
    assert run(monkeypatch, out, systems) == 0
    printed = capsys.readouterr()
    assert "1,000 (1,000 to 1,000)" in printed.out
    assert "not installed: apt-get install absent-server" in printed.out
    assert "left out: The absent one is not installed" in printed.err
    kept = read(out)
    assert {one["round"] for one in kept["samples"]} == {0, 1}
    assert len(kept["fdatasync"]) == 2
    assert kept["left_out"] == {
        "absent": "The absent one is not installed: apt-get install absent-server"
    }


def test_failure_ends_with_1_and_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    system = fake_system("kvcq", client=FailingClient)
    assert run(monkeypatch, tmp_path / "peers.json.gz", [system]) == 1
    assert "two of them are missing" in capsys.readouterr().out


def test_one_round_is_refused_before_it_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "peers.json.gz"
    with pytest.raises(SystemExit):
        run(monkeypatch, out, [fake_system("kvcq")], "--rounds", "1")
    assert "has no spread" in capsys.readouterr().err
    assert not out.exists()
