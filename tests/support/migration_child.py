"""A process that takes every step of a migration, and kills itself at one point on the way.

    python -m tests.support.migration_child ROOT POINT COUNT

Acknowledged messages are told on standard output, one count a line. Points are `write:PHASE:before`
and `write:PHASE:after` (of the change of migration.json to that phase), and the names of POINTS,
where the process dies when the function is called for the COUNT-th time.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import migration.fill.catch_up
import migration.sides.opener
import migration.sides.pair
import migration.state.keeper
from kvcq.consume_queue_store import KvConsumeQueueStore
from kvcq.engine.rocks import RocksEngine
from migration.fill.catch_up import Filler
from migration.sides.double import DoubleQueueStore
from migration.sides.file_side_store import FileSideStore
from migration.state.phase import Phase
from migration.state.state import write_state
from tests.support.migrating import (
    advance,
    config,
    differences,
    done,
    live,
    messages,
    open_store,
    settle,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from migration.state.state import MigrationState

#: Function, and whether the process dies after it rather than before.
POINTS: dict[str, tuple[object, str, bool]] = {
    "backfill": (Filler, "_catch_up_once", True),
    "join": (DoubleQueueStore, "join", True),
    "double write": (FileSideStore, "dispatch", True),
    "other side": (KvConsumeQueueStore, "dispatch", False),
    "remove": (migration.sides.opener, "_remove_tree", False),
    "removed": (migration.sides.opener, "_remove_tree", True),
    "ingest": (RocksEngine, "ingest", True),
    "side flush": (FileSideStore, "flush", True),
}
#: What is put between steps.
STEP = 60


def kill() -> None:
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def arm(point: str, count: int) -> None:
    """From now on the process dies at the point."""
    # Small pieces, so that there is a middle.
    migration.fill.catch_up.BATCH = 40
    migration.fill.catch_up._REST_BYTES = 200
    migration.sides.pair.JOIN_BYTES = 200
    if point.startswith("write:"):
        _, phase, moment = point.split(":")
        original = write_state

        def write(root: Path, state: MigrationState) -> None:
            mine = state.phase.value == phase
            if mine and moment == "before":
                kill()
            original(root, state)
            if mine:
                kill()

        setattr(migration.state.keeper, "write_state", write)  # noqa: B010 - not its own name
        return
    owner, name, after = POINTS[point]
    calls = [0]
    function: Callable[..., Any] = getattr(owner, name)

    def counted(*args: object, **kwargs: object) -> object:
        calls[0] += 1
        dies = calls[0] == count
        if dies and not after:
            kill()
        result = function(*args, **kwargs)
        if dies:
            kill()
        return result

    setattr(owner, name, counted)


def run(root: Path, put: int) -> None:
    """All the way, and all the way back; messages are put between all steps."""
    with open_store(config(root)) as store:

        def more() -> None:
            nonlocal put
            store.put(messages(put, STEP))
            put += STEP
            print(put, flush=True)  # noqa: T201 - the parent reads it

        settle(store)
        done(live(store).start())
        more()
        store.flush()
        assert differences(store) == []
        more()
        live(store).cutover()
        more()
        done(live(store).rollback())
        more()
        advance(store, Phase.FINISHED)
        more()
        done(live(store).rollback())
        more()
        done(live(store).rollback())
        more()
        done(live(store).rollback())
        more()
        store.flush()


if __name__ == "__main__":
    arm(sys.argv[2], int(sys.argv[3]))
    run(Path(sys.argv[1]), int(sys.argv[4]))
    sys.exit("the point was never reached")
