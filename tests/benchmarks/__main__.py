"""`python -m tests.benchmarks`: measure systems in turns, keep the report, print the tables."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from kvcq_bench.report import goals, judge, met_text, write_report
from kvcq_bench.rounds import in_turns, new_report
from tests.benchmarks.systems import ours
from tests.benchmarks.systems.all import our_systems, peer_systems
from tests.benchmarks.tables import tables
from tests.benchmarks.turn import Turn
from tests.benchmarks.work import all_works

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kvcq_bench.report import Report
    from tests.benchmarks.system import System


def main() -> int:
    """0 when every goal was met; 1 when one was missed, or something failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("systems", nargs="*", metavar="SYSTEM", help="only these; see --list")
    parser.add_argument("--list", action="store_true", help="name systems and works, and end")
    parser.add_argument("--peers", action="store_true", help="also Redis, NATS and RocketMQ")
    parser.add_argument(
        "--beside", type=Path, metavar="CHECKOUT", help="also ours of another checkout, in turns"
    )
    parser.add_argument(
        "--work", action="append", default=[], help="only works with these words in their name"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="of the amounts; default 1")
    parser.add_argument("--rounds", type=int, default=3, help="at least 2; default 3")
    parser.add_argument("--directory", type=Path, help="where stores are written; default: /tmp")
    parser.add_argument("--out", type=Path, help="keep the report in this file, .json or .json.gz")
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error("--rounds: one round has no spread, so it says nothing")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # servers and clients end then
    found = our_systems() + (peer_systems() if options.peers else [])
    if options.beside is not None:
        found.insert(1, ours.of_checkout(options.beside.resolve()))
    if options.list:
        for system in found:
            sys.stdout.write(f"{system.name}: {system.title}\n")
        sys.stdout.writelines(f"  {work.name}\n" for work in all_works())
        return 0
    unknown = sorted(set(options.systems) - {system.name for system in found})
    if unknown:
        parser.error(f"no system {unknown[0]!r}; there are {', '.join(one.name for one in found)}")
    wanted = [one for one in found if not options.systems or one.name in options.systems]
    notes = Console(stderr=True)
    began_s = time.monotonic()

    def say(text: str) -> None:
        notes.print(f"{time.monotonic() - began_s:6.0f} s  {text}", markup=False, soft_wrap=True)

    report = measure(wanted, options, say)
    if options.out is not None:
        write_report(report, options.out)
        say(f"kept in {options.out}")
    outcomes = judge(report)
    sys.stdout.write("\n\n".join(tables(report)) + "\n")
    if outcomes:
        sys.stdout.write(f"\n{met_text(outcomes)}\n\n{goals(outcomes).markdown()}\n")
    return 1 if report.failures or any(one.verdict != "met" for one in outcomes) else 0


def measure(
    systems: Sequence[System], options: argparse.Namespace, say: Callable[[str], None]
) -> Report:
    """The report of a run."""
    there = [system for system in systems if system.missing() is None]
    works = [
        work
        for work in all_works()
        if not options.work or any(words in work.name for words in options.work)
    ]
    report = new_report(
        "Works in turns",
        {system.name: system.title for system in there},
        {"scale": options.scale, "rounds": options.rounds},
        [goal for work in works for goal in work.goals]
        + [goal for one in there for goal in one.goals],
    )
    report.limits = [system.name for system in there if system.is_limit]
    report.versions |= {one.name: version for one in there if (version := one.version())}
    for system in systems:
        if (how := system.missing()) is not None:
            report.notes.append(f"{system.title} is not installed: {how}.")
            say(f"left out: {report.notes[-1]}")
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kvcq-benchmark", dir=options.directory) as scratch:

        def turn(system: System, number: int) -> None:
            directory = Path(scratch) / f"{system.name}-{number}"
            due = [work for work in works if system.does(work)]
            Turn(system, number, directory, report, options.scale, say).run(due)

        in_turns(there, options.rounds, turn)
    report.duration_s = time.monotonic() - began_s
    return report


if __name__ == "__main__":
    sys.exit(main())
