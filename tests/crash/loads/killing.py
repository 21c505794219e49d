"""Runs a load until its process kills itself, and judges what is left."""

from __future__ import annotations

import json
import random
import shutil
import signal
from typing import TYPE_CHECKING

from migration.check import check_store
from store.config import FlushMode
from tests.crash.images import lose_unflushed
from tests.crash.loads.groups import Groups
from tests.crash.loads.load import Told
from tests.crash.loads.ordered import Ordered
from tests.crash.loads.waiting import Waiting
from tests.support.fake_clock import FakeClock
from tests.support.forked import run_forked
from tests.support.rebuild import differences
from tests.support.stores import SEGMENT_BYTES, open_small

if TYPE_CHECKING:
    from pathlib import Path

    from tests.crash.loads.load import Load

LOADS: dict[str, type[Load]] = {"groups": Groups, "ordered": Ordered, "waiting": Waiting}

#: Points of tests/crash/putting_child.py, and up to how often each is entered before the kill.
_POINTS = {
    "after append": 1500,
    "in append": 1500,
    "at roll": 30,
    "before fsync": 1500,
    "in dispatch": 1500,
    "behind a record of state": 900,
    "before its rows": 900,
    "in checkpoint": 20,
}
#: ... and those of a load whose segments go.
_POINTS_OF_DROPS = {"before segments go": 20, "as one goes": 30, "in rolling": 200}


def kill_at_random(directory: Path, name: str, seed: int, *, power: bool = False) -> bool:
    """`kill`, at a point chosen by the seed. Most are in SYNC; in ASYNC nothing waits for fsync."""
    chance = random.Random(seed)
    points = _POINTS | (_POINTS_OF_DROPS if LOADS[name].reserved_hours < 2 else {})
    point = chance.choice(list(points))
    # The earlier moments oftener: each of them costs less.
    count = 1 + int(points[point] * chance.random() ** 3)
    is_sync = power or point == "before fsync"
    mode = chance.choice([FlushMode.SYNC, *([] if is_sync else FlushMode)])
    return kill(directory, name, point, count, mode, seed=seed, power=power)


def kill(
    directory: Path,
    name: str,
    point: str,
    count: int,
    mode: FlushMode,
    *,
    seed: int = 0,
    power: bool = False,
) -> bool:
    """Whether the process came to the point; what it left is judged. `power`: the machine lost it,
    too."""
    root, flushed = directory / "store", directory / "flushed"
    arguments = [name, root, mode.value, seed, point, count, flushed]
    child = run_forked("tests.crash.loads", *arguments, timeout=300)
    assert child.returncode in (0, -signal.SIGKILL), child.stderr.decode()[-3000:]
    is_killed = child.returncode != 0
    told = [Told(*json.loads(line)) for line in child.stdout.splitlines() if line.endswith(b"]")]
    if power and is_killed:
        durable = int.from_bytes(flushed.read_bytes(), "big")
        lose_unflushed(root, durable, SEGMENT_BYTES, random.Random(f"{seed} power"))
    judge(root, name, told, mode)
    shutil.rmtree(root)
    return is_killed


def judge(root: Path, name: str, told: list[Told], mode: FlushMode) -> None:
    """What the store gives to one who comes after the crash, by what was answered before."""
    clock = FakeClock()
    for what, value in told:
        if what == "time":
            clock.wall_ms, clock.monotonic = value
    kind = LOADS[name]
    with open_small(root, clock, flush_mode=mode, reserved_hours=kind.reserved_hours) as store:
        store.timers.firing.stop()  # nothing changes while it is looked at
        store.wait_visible()
        assert not (found := differences(store)), found[:3]
        kind.judge(store, clock, told)
        store.wait_visible()
        assert not (found := differences(store)), found[:3]
    assert [each for each in check_store(root) if each.is_fault] == []
