"""`python -m tests.campaign`: kill servers and cut the power, until something fails or all is done.

    python -m tests.campaign --kills 1000 --power-losses 500 --seed 7

A failure prints its seed and what did not hold, keeps the store, and ends with exit code 1.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import sys
import tempfile
from pathlib import Path
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.campaign.disk import can_lose_power
from tests.campaign.lives import Launcher, Lives, Tally
from tests.campaign.model import Failure

_LIVES = 20  # of one store


def main() -> int:
    """0 when everything held, 1 when something did not, 2 for what cannot be done here."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="default 1000")
    parser.add_argument("--power-losses", type=int, default=500, help="default 500; needs root")
    parser.add_argument("--seed", default="1", help="any word; default 1")
    parser.add_argument(
        "--first-store", type=int, default=0, help="begin at this store of the seed"
    )
    parser.add_argument(
        "--without",
        default="",
        help="calls to leave out, such as resend,altered; see workload.py",
    )
    parser.add_argument("--directory", type=Path, help="where stores are made; default: /tmp")
    parser.add_argument("--keep", type=Path, default=Path("reports/campaign-failure"))
    parser.add_argument("--json", type=Path, help="also write the counts to this file")
    options = parser.parse_args()
    notes = Console(stderr=True)
    if options.power_losses and not can_lose_power():
        notes.print("Power losses need root and loop devices: they are left out here.")
        notes.print("Simulated images are tested by: make test-crash")
        options.power_losses = 0
    began_s = monotonic()
    counts: dict[str, object] = {"seed": options.seed}
    code = 0
    try:
        for kind, wanted in (("kills", options.kills), ("power losses", options.power_losses)):
            if wanted and not code:
                tally = Tally()
                try:
                    code = _run(kind, wanted, options, tally, notes)
                finally:
                    counts[kind] = dataclasses.asdict(tally)
    finally:
        counts["seconds"] = round(monotonic() - began_s)
        sys.stdout.write(json.dumps(counts, indent=1) + "\n")
        if options.json is not None:
            options.json.write_text(json.dumps(counts, indent=1), encoding="utf-8")
    return code


def _run(kind: str, wanted: int, options: argparse.Namespace, tally: Tally, notes: Console) -> int:
    launcher = Launcher()
    progress = Progress(
        TextColumn(kind),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=notes,
    )
    store = options.first_store
    with progress:
        task = progress.add_task(kind, total=wanted)
        while (done := _done(tally)) < wanted:
            progress.update(task, completed=done)
            seed = f"{options.seed}/{kind}/{store}"
            with tempfile.TemporaryDirectory(
                prefix="kvcq-campaign", dir=options.directory
            ) as directory:
                lives = Lives(Path(directory), seed, launcher, tally, options.without.split(","))
                try:
                    if kind == "kills":
                        lives.run_kills(_LIVES)
                    else:
                        lives.run_power_losses(_LIVES)
                except BaseException as error:
                    launcher.close_now()
                    if not isinstance(error, KeyboardInterrupt):
                        shutil.rmtree(options.keep, ignore_errors=True)
                        lives.keep(options.keep)
                    if not isinstance(error, Failure):
                        raise
                    notes.print(f"[bold red]failed[/], seed {options.seed}, store {store}:")
                    notes.print(str(error), markup=False, soft_wrap=True)
                    notes.print(f"what is left of it: {options.keep}", markup=False)
                    notes.print(
                        f"again with: python -m tests.campaign --seed {options.seed} "
                        f"--first-store {store} --{kind.replace(' ', '-')} {_LIVES}",
                        markup=False,
                        soft_wrap=True,
                    )
                    return 1
                finally:
                    lives.close()
            store += 1
        progress.update(task, completed=wanted)
    launcher.close()
    return 0


def _done(tally: Tally) -> int:
    return sum(count for ending, count in tally.endings.items() if ending != "stop")


if __name__ == "__main__":
    sys.exit(main())
