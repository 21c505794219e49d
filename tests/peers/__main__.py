"""`python -m tests.peers`: measure all systems in turns, keep it all, print the tables."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from kvcq_bench.machine import machine, versions
from tests.peers.cold import ColdMemory
from tests.peers.echoes.run import echo, installed_pairs
from tests.peers.fdatasync import bare_fdatasync
from tests.peers.measured import FORMAT
from tests.peers.report import REPORT, write
from tests.peers.systems.all import SYSTEMS
from tests.peers.table import markdown
from tests.peers.turns import Found, Turn, in_turns, installed

_FDATASYNC_S = 1.0
ECHOES = "echoes"


def main() -> int:
    """0 when all went well; 1 when a piece of work failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.peers", description=__doc__)
    names = [*(system.name for system in SYSTEMS), ECHOES]
    parser.add_argument(
        "systems", nargs="*", metavar="SYSTEM", help=f"of: {', '.join(names)}; none: all"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="of the amounts; default 1")
    parser.add_argument("--rounds", type=int, default=3, help="at least 2; default 3")
    parser.add_argument("--directory", type=Path, help="where stores are written; default: /tmp")
    parser.add_argument("--out", type=Path, default=REPORT, help=f"default: {REPORT}")
    parser.add_argument("--no-cold", action="store_true", help="do not make memory cold")
    options = parser.parse_args()
    unknown = sorted(set(options.systems) - set(names))
    if unknown:
        parser.error(f"no system {unknown[0]!r}; there are {', '.join(names)}")
    if options.rounds < 2:
        parser.error("--rounds: 1 round has no spread, and no figure is printed without it")
    # Servers and clients are ended then, as after a failure.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    notes = Console(stderr=True)
    began_s = time.monotonic()

    def say(text: str) -> None:
        notes.print(f"{time.monotonic() - began_s:6.0f} s  {text}", markup=False, soft_wrap=True)

    document = measure(options, say)
    write(document, options.out)
    say(f"kept in {options.out}")
    sys.stdout.write(markdown(document) + "\n")
    return 1 if document["failures"] else 0


def measure(options: argparse.Namespace, say: Any) -> dict[str, Any]:  # noqa: ANN401 - a callable
    """The document of a run."""
    began_s = time.monotonic()
    before = machine()
    found = Found()
    wanted = [one for one in SYSTEMS if not options.systems or one.name in options.systems]
    systems = installed(wanted, found)
    pairs = installed_pairs(found) if ECHOES in (options.systems or [ECHOES]) else []
    for line in found.left_out.values():
        say(f"left out: {line}")
    syncs = []
    with (
        tempfile.TemporaryDirectory(prefix="kvcq-peers", dir=options.directory) as scratch,
        ColdMemory(limit_bytes=0 if options.no_cold else None) as cold,
    ):

        def turn(system: Any, number: int) -> None:  # noqa: ANN401 - a System
            syncs.append(
                bare_fdatasync(
                    Path(scratch), _FDATASYNC_S * max(0.02, min(1, options.scale))
                ).document()
            )
            directory = Path(scratch) / f"{system.name}-{number}"
            Turn(system, number, directory, found, cold, options.scale, say).run()

        in_turns(systems, options.rounds, turn)
        cold.release()
        in_turns(
            pairs,
            options.rounds,
            lambda pair, number: echo(
                pair, number, Path(scratch) / f"echo-{number}", found, options.scale, say
            ),
        )
    return {
        "format": FORMAT,
        "machine": before,
        "versions": versions() | found.versions,
        "scale": options.scale,
        "rounds": options.rounds,
        "titles": {system.name: system.title for system in SYSTEMS},
        "limits": [system.name for system in SYSTEMS if system.limits],
        "left_out": found.left_out,
        "not_offered": found.not_offered,
        "failures": found.failures,
        "settings": found.settings,
        "fdatasync": syncs,
        "samples": [sample.document() for sample in found.samples],
        "echoes": [sample.document() for sample in found.echoes],
        "echo_titles": {pair.title: pair.title for pair in pairs},
        "seconds": time.monotonic() - began_s,
    }


if __name__ == "__main__":
    sys.exit(main())
