"""P7: killed at any point of a migration, nothing is lost or repeated, and the way goes on."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from migration.state.phase import Phase
from tests.support.forked import run_forked
from tests.support.migrating import (
    advance,
    check_messages,
    config,
    differences,
    done,
    live,
    make_on_files,
    messages,
    open_store,
    settle,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.crash

FIRST = 400
_PHASES = ("DOUBLE_WRITE", "VERIFIED", "ROCKSDB", "FINISHED", "FILES")
POINTS = [
    *((f"write:{phase}:before", 1) for phase in _PHASES),
    *(pytest.param(f"write:{phase}:after", 1, marks=pytest.mark.slow) for phase in _PHASES),
    ("backfill", 2),
    pytest.param("backfill", 9, marks=pytest.mark.slow),
    ("join", 1),
    ("double write", 2),
    ("other side", 14),
    ("side flush", 1),
    ("remove", 2),
    ("removed", 2),
    pytest.param("remove", 5, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("point", "count"), POINTS)
def test_a_kill_at_any_point_loses_and_repeats_nothing(
    tmp_path: Path, point: str, count: int
) -> None:
    root = tmp_path / "store"
    make_on_files(root)
    with open_store(config(root)) as store:
        store.put(messages(0, FIRST))
    child = run_forked("tests.support.migration_child", root, point, count, FIRST)
    assert child.returncode == -signal.SIGKILL, child.stderr
    acknowledged = max([FIRST, *map(int, child.stdout.split())])
    with open_store(config(root)) as store:
        settle(store)
        there = check_messages(store, acknowledged)
        if live(store).state.phase is not Phase.FILES:
            assert differences(store) == []
        # The way goes on from wherever it was.
        if live(store).state.phase is Phase.FINISHED:
            done(live(store).rollback())
        advance(store, Phase.ROCKSDB)
        store.put(messages(there, 40))
        there += 40
        done(live(store).rollback())
        assert differences(store) == []
        assert check_messages(store, there) == there
    with open_store(config(root)) as store:
        settle(store)
        assert check_messages(store, there) == there
        assert differences(store) == []
