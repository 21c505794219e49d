"""The migration as a whole, for the service, the command line, and programs.

`Migrator(opened)` uses an open store. `open_migrator(root)` opens a stopped one for the length of a
block. The steps are methods of `LiveMigration`, see `live_for`; docs/migration.md describes them.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from migration.errors import IllegalStepError
from migration.next_step import NO_MIGRATION, NextStep
from migration.opening import Opened, open_any
from migration.plan import plan_live
from migration.state import (
    FileLayout,
    MigrationState,
    Phase,
    SideName,
    next_step,
    read_state,
    write_state,
)
from store.base import SystemClock, no_progress
from store.config import StoreConfig
from store.errors import StoreFormatError
from store.store_dir import DirKind, inspect

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from migration.jobs import Job
    from migration.plan import Plan
    from migration.steps import LiveMigration
    from store.base import Progress

_FAR_AWAY_S = 1e6


@dataclass(frozen=True)
class SideStatus:
    """The current state of one side."""

    name: str
    dispatched_offset: int
    behind_bytes: int
    joined: bool
    failure: str


@dataclass(frozen=True)
class MigrationStatus:
    """The result of `Migrator.status`."""

    #: None: the store was created in RocksDB, and has no migration.
    state: MigrationState | None
    log_start_offset: int
    log_end_offset: int
    dispatched_offset: int
    sides: tuple[SideStatus, ...]
    #: Id of the running backfill or verification; "" if none runs.
    running_job_id: str
    #: Why the last verification was aborted; "" if it was not, and while one runs.
    verify_broken_off: str
    next_step: NextStep


class Migrator:
    """Plan and status of one open store, and access to its steps. Thread: any."""

    def __init__(self, opened: Opened) -> None:
        self._store, self._found = opened

    @property
    def live(self) -> LiveMigration:
        """Like `live_for`, for any step."""
        return self.live_for("this step")

    def live_for(self, step: str) -> LiveMigration:
        """The live migration. Raises IllegalStepError, naming `step`, for a store without one."""
        if self._found is None:
            # A stopped store would have been given a migration, so this one runs.
            back = NextStep("rollback", stopped_only=True)
            following = back if step == "rollback" else NO_MIGRATION
            raise IllegalStepError(step, None, "its queues are only in RocksDB", following)
        return self._found

    @property
    def has_live(self) -> bool:
        """Whether the store has a migration."""
        return self._found is not None

    def plan(self) -> Plan:
        """A dry run; changes nothing."""
        live = self._found
        if live is None:
            return plan_live(self._store, None, self._store.log.appended_offset)
        done = min(side.store.dispatched_offset for side in live.double.sides())
        return plan_live(self._store, live.state, done)

    def status(self) -> MigrationStatus:
        """The current status. A store without a migration only has the RocksDB side."""
        live = self._found
        log = self._store.log
        dispatched = self._store.queues.dispatched_offset
        if live is None:
            state = None
            sides: tuple[SideStatus, ...] = (
                SideStatus(SideName.ROCKSDB.value, dispatched, 0, joined=True, failure=""),
            )
            running = None
        else:
            state = live.state
            running = live.running
            sides = tuple(
                SideStatus(
                    side.name.value,
                    side.store.dispatched_offset,
                    max(0, dispatched - side.store.dispatched_offset),
                    joined=side.joined,
                    failure="" if side.failure is None else str(side.failure),
                )
                for side in live.double.sides()
            )
        return MigrationStatus(
            state,
            log.start_offset,
            log.appended_offset,
            dispatched,
            sides,
            "" if running is None else running.job_id,
            _broken_off(state, running),
            NO_MIGRATION if state is None else next_step(state),
        )


def _broken_off(state: MigrationState | None, running: Job | None) -> str:
    broken_off = None if state is None else state.broken_off
    is_verifying = running is not None and running.kind == "verify"
    return "" if broken_off is None or is_verifying else broken_off.reason


@contextmanager
def open_migrator(root: Path, progress: Progress = no_progress) -> Iterator[Migrator]:
    """Open the store in `root` for its migration, until the end of the block.

    Retention does not run meanwhile. Raises StoreFormatError, StoreLockedError while a service has
    it open, MigrationStateError.
    """
    kind, identity = inspect(root)
    if kind is DirKind.ROCKETMQ:
        raise IllegalStepError("this step", None, "RocketMQ wrote this store", NextStep("start"))
    if identity is None:
        raise StoreFormatError(root, "is not a store")
    config = StoreConfig(
        root=root,
        segment_bytes=identity.segment_bytes,
        clean_interval_s=_FAR_AWAY_S,
        preallocate=False,
    )
    opened = open_any(config, progress=progress)
    with opened.store:
        yield Migrator(opened)


def begin_on_rocksdb(root: Path) -> None:
    """Give a store that was created in RocksDB a migration.json, in state FINISHED, so that a
    rollback can create its files. Repeatable.

    It must be stopped.
    """
    if read_state(root) is None:
        now_ms = SystemClock().now_ms()
        layout = FileLayout(index_tags_from=0)
        state = MigrationState(Phase.FINISHED, layout=layout)
        write_state(root, state.moved(now_ms, "made in RocksDB"))
