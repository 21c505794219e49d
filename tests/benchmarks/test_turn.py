"""Turns: what is measured, what is left out, what fails, and what is kept of it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from kvcq_bench.report import Figure, Report, read_report
from tests.benchmarks import __main__ as command
from tests.benchmarks.client import answer
from tests.benchmarks.system import NoServer, System
from tests.benchmarks.systems import bare
from tests.benchmarks.systems.all import our_systems, peer_systems
from tests.benchmarks.systems.ours import SYSTEM
from tests.benchmarks.turn import READ, RESTART, STOP, Turn
from tests.benchmarks.work import AFTER_FSYNC, all_works

if TYPE_CHECKING:
    from pathlib import Path

_METHODS = frozenset({"put_one", "put_batches", "put_each", "read_back"})
_DONE = {
    "put, one at a time, blocking",
    "put, one at a time, blocking, after fsync",
    "put, batches of 128",
    "put, batches of 128, after fsync",
    "read back, consumer",
}


class FakeServer(NoServer):
    running = 0

    def start(self) -> None:
        FakeServer.running += 1

    def stop(self) -> None:
        FakeServer.running = 0


def fake(name: str = "kvcq", *fails: str, missing: str | None = None) -> System:
    """A system without a server, whose client is another program."""
    program = [sys.executable, "-m", "tests.benchmarks.fake_client", *fails]
    return System(
        name,
        f"The {name} one",
        FakeServer,
        "",
        lambda: missing,
        command=lambda _: program,
        methods=_METHODS,
    )


def run(directory: Path, system: System, number: int = 0) -> Report:
    """One turn of the system, with the least amounts."""
    report = Report("t", {}, {}, {"scale": 0.0}, {system.name: system.title})
    works = [work for work in all_works() if system.does(work)]
    Turn(system, number, directory / "turn", report, 0.0, lambda _: None).run(works)
    return report


def test_turn_does_all_works_and_leaves_nothing_behind(tmp_path: Path) -> None:
    report = run(tmp_path, fake(), 2)
    assert not report.failures
    assert set(report.works) == {*_DONE, STOP, RESTART}
    assert FakeServer.running == 0
    assert list((tmp_path / "turn").iterdir()) == []
    (batches,) = report.of("put, batches of 128")
    assert batches.figures["rate"].value == pytest.approx(1000)
    assert batches.figures["rate"].unit == "messages/s"
    assert batches.round == 2
    (one,) = report.of("put, one at a time, blocking")
    assert one.figures["p99"] == Figure(3.0, "ms")


def test_what_is_read_was_put_before(tmp_path: Path) -> None:
    """Just as many messages as are in the queue are asked for."""
    (read,) = (work for work in all_works() if work.method == "read_back")
    asked: list[dict[str, object]] = []

    class Recorded:
        def run(self, method: str, **arguments: object) -> object:
            asked.append({"work": method, **arguments})
            return type("Timed", (), {"count": 1000})

    turn = Turn(fake(), 0, tmp_path, run(tmp_path, fake()), 0.0, lambda _: None)
    assert turn._arguments(Recorded(), read) == {"queue": READ, "count": 1000}  # type: ignore[arg-type]
    turn._arguments(Recorded(), read)  # type: ignore[arg-type]
    assert [one["queue"] for one in asked] == [READ], "it is filled once"


def test_work_that_is_not_offered_is_noted(tmp_path: Path) -> None:
    (note,) = run(tmp_path, fake()).notes
    assert note == (
        "The kvcq one has no figure of put, one send each, batched by the client: "
        "no batching of its own."
    )


def test_failure_is_noted_and_the_other_durability_is_measured(tmp_path: Path) -> None:
    report = run(tmp_path, fake("kvcq", "read_back"))
    (failure,) = report.failures
    assert failure.startswith("The kvcq one, round 1: ")
    assert "two of them are missing" in failure
    assert set(report.works) == _DONE - {"read back, consumer"}
    assert FakeServer.running == 0


def main(monkeypatch: pytest.MonkeyPatch, systems: list[System], *more: str) -> int:
    monkeypatch.setattr(command, "our_systems", lambda: systems)
    flags = ["--scale", "0.001", "--rounds", "2", *more]
    monkeypatch.setattr("sys.argv", ["benchmarks", *flags])
    return command.main()


def test_report_is_kept_and_what_is_not_installed_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    systems = [fake(), fake("redis", missing="apt-get install absent-server")]
    out = tmp_path / "report.json.gz"
    assert main(monkeypatch, systems, "--out", str(out), "--work", "batches") == 0
    printed = capsys.readouterr().out
    assert "The redis one is not installed: apt-get install absent-server." in printed
    assert "What it costs" not in printed
    report = read_report(out)
    assert [one.round for one in report.of("put, batches of 128")] == [0, 1]
    assert set(report.systems) == {"kvcq"}


@pytest.mark.slow
def test_failure_and_missed_goal_end_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(monkeypatch, [fake("kvcq", "put_batches")], "--work", "batches") == 1
    # A goal is for scale 1; the fake one has 1,000/s at any.
    assert main(monkeypatch, [fake()], "--work", "one at a time", "--scale", "1") == 1


def test_one_round_is_refused_before_it_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(monkeypatch, [fake()], "--rounds", "1")
    assert "one round has no spread" in capsys.readouterr().err


def test_client_says_what_went_wrong() -> None:
    found = answer(object(), "kvcq", '{"work": "put_one", "limit_s": 0.0}')
    assert "AttributeError" in found["error"]


def test_each_goal_is_of_a_work_and_a_system_that_there_are() -> None:
    works = {work.name for work in all_works()}
    works |= {name + AFTER_FSYNC for name in works}
    systems = {system.name for system in our_systems() + peer_systems()}
    goals = [goal for work in all_works() for goal in work.goals]
    goals += [goal for system in our_systems() for goal in system.goals]
    assert len(goals) > 40
    for goal in goals:
        assert {goal.work, goal.of_work} <= works | {""}
        assert {goal.of, goal.system} <= systems | {""}
        assert goal.reason


def test_each_system_has_works() -> None:
    for system in our_systems() + peer_systems():
        assert any(system.does(work) for work in all_works()), system.name


def _check_all_works(directory: Path, system: System) -> None:
    report = run(directory, system)
    assert not report.failures
    assert not report.notes
    works = [work for work in all_works() if system.does(work)]
    names = {work.name for work in works}
    names |= {work.name + AFTER_FSYNC for work in works if work.after_fsync and not system.works}
    assert set(report.works) - {STOP, RESTART} == names
    assert all(one.figures["rate"].value > 0 for one in report.results)


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize("system", bare.SYSTEMS, ids=lambda system: str(system.name))
def test_limit_is_measured_for_all_works_that_it_bounds(tmp_path: Path, system: System) -> None:
    _check_all_works(tmp_path, system)


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize(
    "system",
    [SYSTEM, *(one for one in our_systems() if one.name.startswith("kvcq-"))],
    ids=lambda system: str(system.name),
)
@pytest.mark.timeout(400)
def test_ours_is_measured_with_each_setting(tmp_path: Path, system: System) -> None:
    if (how := system.missing()) is not None:
        pytest.skip(how)
    _check_all_works(tmp_path, system)
