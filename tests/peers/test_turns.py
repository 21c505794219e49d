"""Turns, what is left out, what is not offered, and what fails; and one with our own server."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.peers.cold import ColdMemory
from tests.peers.fake import FailingClient, FakeServer, fake_system
from tests.peers.measured import FORMAT
from tests.peers.spread import NoSpreadError
from tests.peers.systems import kvcq
from tests.peers.table import markdown
from tests.peers.turns import Found, Turn, in_turns, installed
from tests.peers.values import Durability, Memory
from tests.peers.works import WORKS

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from tests.peers.systems.protocol import System

_WORKS = {
    (work.name, work.memory, durability) for durability in WORKS for work in WORKS[durability]
}
_OF_PEERS = {
    (work.name, work.memory, durability)
    for durability in WORKS
    for work in WORKS[durability]
    if work.of_peers
}


def run(directory: Path, *systems: System, rounds: int = 1) -> Found:
    """The systems one after the other, round by round, with the least amounts."""
    found = Found()
    with ColdMemory(limit_bytes=0) as cold:
        for number in range(rounds):
            for system in systems:
                place = directory / f"{system.name}{number}"
                Turn(system, number, place, found, cold, 0.0, lambda _: None).run()
    return found


def document(found: Found, *systems: System, rounds: int = 2) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "machine": {
            "processor": "abacus",
            "cores": 2,
            "memory_bytes": 1 << 30,
            "time": "2026-11-22",
        },
        "versions": {},
        "rounds": rounds,
        "scale": 1.0,
        "titles": {system.name: system.title for system in systems},
        "limits": [system.name for system in systems if system.limits],
        "left_out": found.left_out,
        "not_offered": found.not_offered,
        "failures": found.failures,
        "settings": found.settings,
        "fdatasync": [{"p50_us": 100.0, "p99_us": 200.0}, {"p50_us": 120.0, "p99_us": 300.0}],
        "samples": [sample.document() for sample in found.samples],
    }


def test_each_round_begins_with_another_system() -> None:
    systems = [fake_system(name) for name in "abc"]
    done: list[str] = []
    in_turns(systems, 3, lambda system, number: done.append(f"{system.name}{number}"))
    assert done == ["a0", "b0", "c0", "b1", "c1", "a1", "c2", "a2", "b2"]


def test_system_that_is_not_installed_is_left_out_with_how_to_install_it() -> None:
    found = Found()
    there = fake_system("there")
    absent = fake_system("absent", missing="apt-get install absent-server")
    assert installed([there, absent], found) == [there]
    assert found.left_out == {
        "absent": "The absent one is not installed: apt-get install absent-server"
    }
    assert found.versions == {"there": "1.0"}


def test_turn_does_all_works_and_leaves_nothing_behind(tmp_path: Path) -> None:
    found = run(tmp_path, fake_system())
    assert not found.failures
    assert {(one.work, one.memory, one.durability) for one in found.samples} == {
        one for one in _OF_PEERS if "one send each" not in one[0]
    }
    assert list(found.not_offered["fake"].values()) == ["no batches of its own"]
    assert FakeServer.running == 0
    assert list((tmp_path / "fake0").iterdir()) == []
    batches = next(one for one in found.samples if "batches" in one.work)
    assert batches.rate == pytest.approx(1000)
    assert batches.more["is_cold"] == 0.0


def test_failure_is_noted_and_the_other_durability_still_measured(tmp_path: Path) -> None:
    found = run(tmp_path, fake_system(client=FailingClient))
    [failure] = found.failures
    assert failure.startswith("The fake one, before fsync, round 1: ")
    assert "two of them are missing" in failure
    assert {one.durability for one in found.samples} == set(Durability)
    assert FakeServer.running == 0


def test_tables_have_the_median_its_spread_and_the_ratio(tmp_path: Path) -> None:
    ours, other = fake_system("kvcq"), fake_system("other")
    found = run(tmp_path, ours, other, rounds=2)
    found.left_out["absent"] = "The absent one is not installed: apt-get install it"
    text = markdown(document(found, ours, other))
    figure = "1,000 (1,000 to 1,000)"
    assert f"| put, batches of 128, messages/s | {figure} | {figure}, **1** |" in text
    assert "110 (100 to 120) us" in text
    assert "The absent one is not installed: apt-get install it" in text
    assert "The kvcq one: before fsync: fake before fsync" in text
    # Not a figure in the tables stands alone.
    for line in text.partition("Acknowledged")[2].splitlines():
        for cell in line.strip("| ").split(" | ")[1:] if line.startswith("| ") else ():
            for figure in re.split(r" \+ |; p99 |, \*\*[^*]+\*\*", cell):
                assert re.fullmatch(r"|-|The \w+ one|-?[\d.,e+-]+ \(-?\S+ to -?\S+\)", figure), cell


def test_goals_stand_first_with_what_was_reached(tmp_path: Path) -> None:
    ours = fake_system("kvcq")
    text = markdown(document(run(tmp_path, ours, rounds=2), ours))
    assert "| put, one at a time, blocking, calls/s | 5,000 | 1,000 (1,000" in text


def test_limit_has_no_column_where_it_has_no_figure(tmp_path: Path) -> None:
    ours, limit = fake_system("kvcq"), fake_system("bare", limits={"put_batches"})
    found = run(tmp_path, ours, limit, rounds=2)
    assert {one.work for one in found.samples if one.system == "bare"} == {"put, batches of 128"}
    parts = markdown(document(found, ours, limit)).split("\n\n")
    tables = {part.splitlines()[0]: part for part in parts if part.startswith("|")}
    figure = "1,000 (1,000 to 1,000)"
    assert "| work | The kvcq one | The bare one |" in tables
    assert f"| put, batches of 128, messages/s | {figure} | {figure}, **1** |" in "".join(parts)
    assert "|  | The kvcq one |" in tables  # its memory and disk are not those of a server


def test_tables_of_no_system_are_empty() -> None:
    """As where only the stacks are compared."""
    nothing = document(Found()) | {"fdatasync": []}
    assert "kvcq" not in markdown(nothing)


def test_one_round_gives_no_table(tmp_path: Path) -> None:
    system = fake_system("kvcq")
    with pytest.raises(NoSpreadError, match="at least 2 rounds"):
        markdown(document(run(tmp_path, system), system, rounds=1))


@pytest.mark.slow
@pytest.mark.integration
def test_our_own_server_and_client_through_the_plug(tmp_path: Path) -> None:
    found = run(tmp_path, kvcq.SYSTEM)
    assert not found.failures
    assert not found.not_offered
    assert {(one.work, one.memory, one.durability) for one in found.samples} == _WORKS
    for sample in found.samples:
        assert sample.timed["count"] > 0, sample
        assert sample.timed["seconds"] > 0, sample
    one = next(each for each in found.samples if each.work.startswith("put, one at a time"))
    assert one.timed["p50_us"] <= one.timed["p99_us"]
    assert one.memory is Memory.AS_IT_COMES
