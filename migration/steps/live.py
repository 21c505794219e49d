"""The migration of an open store: its steps and jobs.

Each step changes migration.json once. If reads or writes change with it, that is between two
dispatches. Long work is a job, which the next opening continues.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from migration.errors import JobCancelledError
from migration.jobs import JobList
from migration.state import BrokenOff, Phase, SideName
from migration.steps.filling import fill
from migration.steps.ingesting import ingest
from migration.steps.inheriting import inherit
from migration.steps.migration import Migration, taken_back
from migration.steps.verify import KEY_EVERY
from migration.steps.verifying import Verifying
from store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from kvcq.inspect import Finding
    from migration.jobs import Job
    from migration.sides import DoubleQueueStore, SideOpener
    from migration.state import MigrationState, StateKeeper
    from store.base import Clock
    from store.message_store import MessageStore

logger = logging.getLogger(__name__)

_CANCELLED = "cancelled by an operator"


class LiveMigration:
    """Runs the steps and jobs of one open store. It is the Attendant of the store's two sides.

    Thread: any. Locks: `_steps`, outermost, held for a whole step. Jobs never take it, because a
    step may wait for a job to end; they change the state between two dispatches, and see the state
    that earlier steps have written.
    """

    def __init__(self, keeper: StateKeeper, opener: SideOpener, clock: Clock) -> None:
        """`begin` must be called once the store is open."""
        # Constant after construction.
        self._keeper = keeper
        self._opener = opener
        self._clock = clock
        self._steps = threading.RLock()
        self._jobs = JobList(clock)
        # Set by `begin`.
        self._begun = False
        self._on: Migration
        self._verifier: Verifying
        # Guarded by _steps; may be read without it.
        self._filling: Job | None = None
        self._verifying: Job | None = None

    def begin(self, store: MessageStore, double: DoubleQueueStore) -> None:
        """Allow steps, and continue unfinished work of an earlier process."""
        self._on = Migration(store, double, self._keeper, self._opener, self._clock)
        self._verifier = Verifying(self._on)
        if self.state.inherits is not None:
            taken = inherit(store, self._keeper.root, self.state.inherits)
            # As an append of an ASYNC store it is not durable yet, and the state says that it is.
            store.flush()
            event = "; ".join(taken.lines()) or "nothing waited in the broker's topics"
            self._keeper.move(event, inherits=None)
        self._begun = True
        self.look()

    # --- looking ---------------------------------------------------------------------------

    @property
    def state(self) -> MigrationState:
        return self._keeper.state

    @property
    def double(self) -> DoubleQueueStore:
        return self._on.double

    @property
    def on(self) -> Migration:
        """The migration that the steps work on."""
        return self._on

    @property
    def filling(self) -> Job | None:
        """The running or last backfill."""
        return self._filling

    @property
    def differences(self) -> Sequence[Finding]:
        """Findings of the last verification in this process, at most 10,000."""
        return self._verifier.differences

    @property
    def job_list(self) -> JobList:
        return self._jobs

    @property
    def running(self) -> Job | None:
        """A running verification or backfill."""
        for job in (self._verifying, self._filling):
            if job is not None and job.is_running:
                return job
        return None

    def job(self, job_id: str) -> Job:
        """The job with that id. Raises UnknownJobError."""
        return self._jobs.job(job_id)

    # --- steps -----------------------------------------------------------------------------

    def start(self) -> Job:
        """FILES to DOUBLE_WRITE: new messages go to RocksDB as well, and a job fills in the
        history. In DOUBLE_WRITE: returns the running job. Raises IllegalStepError."""
        with self._steps:
            state = self.state
            if state.phase is Phase.FILES:
                # Rows of an earlier attempt may be wrong.
                self._opener.remove(SideName.ROCKSDB)
                store = self._opener.rocksdb()
                self.double.attach(SideName.ROCKSDB, store)
                try:
                    self.double.change_phase(
                        lambda: self._on.moved("double write began", Phase.DOUBLE_WRITE)
                    )
                except BaseException:
                    self.double.detach(SideName.ROCKSDB).close()
                    raise
            elif state.phase is not Phase.DOUBLE_WRITE:
                raise self._on.refuse("start", "the double write has begun already")
            return self._fill()

    def verify(self, key_every: int = KEY_EVERY) -> Job:
        """Start a job that compares log, files and RocksDB up to the current cut point. Keys are
        compared of one message in `key_every`.

        In DOUBLE_WRITE it ends in VERIFIED if there is no difference. Raises IllegalStepError.
        """
        with self._steps:
            if self._verifying is not None and self._verifying.is_running:
                return self._verifying
            if self._on.waits_for:
                raise self._on.refuse("verify")
            # Replaced when the verification ends. It only stays if the process is killed.
            self._keeper.move("a verification began", broken_off=BrokenOff("the process ended"))
            self._verifying = self._jobs.begin(
                "verify", lambda job: self._verifier.run(job, key_every)
            )
            return self._verifying

    def cutover(self) -> MigrationState:
        """VERIFIED to ROCKSDB: reads come from RocksDB from the next dispatch on.

        Repeatable. Raises IllegalStepError.
        """
        with self._steps:
            state = self.state
            if state.phase is Phase.ROCKSDB:
                return state
            if state.phase is not Phase.VERIFIED:
                raise self._on.refuse("cutover", "a verification without differences is required")
            if self._on.waits_for:
                raise self._on.refuse("cutover")

            def cut() -> Phase:
                self._check_joined("cutover", [SideName.ROCKSDB])
                return self._on.moved("reads come from RocksDB", Phase.ROCKSDB)

            self.double.change_phase(cut)
            return self.state

    def rollback(self) -> Job | None:
        """Go one phase back. Returns a job if files must be filled first; None if it is done.

        ROCKSDB to DOUBLE_WRITE: reads come from files. DOUBLE_WRITE, VERIFIED to FILES: RocksDB is
        removed. FINISHED to ROCKSDB: files are rebuilt from the log. Raises IllegalStepError.
        """
        with self._steps:
            state = self.state
            if state.phase in (Phase.DOUBLE_WRITE, Phase.VERIFIED):
                self._jobs.stop()
                self.double.change_phase(
                    lambda: self._on.moved(
                        taken_back("RocksDB is given up", state),
                        Phase.FILES,
                        pending=None,
                        verified=None,
                        broken_off=None,
                        stopped="",
                        unopened="",
                    )
                )
                self._on.drop(SideName.ROCKSDB)
                self._on.give_config_back()
                return None
            if state.phase is Phase.ROCKSDB:
                if SideName.FILES.value in state.blamed:
                    raise self._on.refuse("rollback", "the files differ from the log")
                if self._on.waits_for:
                    raise self._on.refuse("rollback")

                def back() -> Phase:
                    self._check_joined("rollback", [SideName.FILES])
                    event = taken_back("reads come from files", state)
                    return self._on.moved(event, Phase.DOUBLE_WRITE, verified=None)

                self.double.change_phase(back)
                return None
            if state.phase is Phase.FINISHED:
                return self._rebuild_files()
            raise self._on.refuse("rollback", "everything is in files already")

    def finish(self) -> MigrationState:
        """ROCKSDB to FINISHED: remove the files. Repeatable. Raises IllegalStepError."""
        with self._steps:
            state = self.state
            if state.phase not in (Phase.ROCKSDB, Phase.FINISHED):
                raise self._on.refuse("finish", "reads come from files still")
            if state.pending is not None:
                raise self._on.refuse("finish")
            if SideName.ROCKSDB.value in state.blamed:
                # The files may be the only side that is correct or readable.
                raise self._on.refuse("finish", "RocksDB differs from the log")
            if state.phase is Phase.ROCKSDB:
                # Older snapshots lack ends of queues without messages, which only the files had.
                self._on.store.snapshots.take_anew()
                self.double.change_phase(
                    lambda: self._on.moved("finished", Phase.FINISHED, stopped="")
                )
            is_absent = SideName.FILES in self.double.absent
            if is_absent or self.double.side(SideName.FILES) is not None:
                self._jobs.stop()
                self._on.drop(SideName.FILES)
            return self.state

    def resume(self) -> Job | None:
        """Continue after a stop: reopen a failed side, and bring it up from its watermark. None if
        there is nothing to do."""
        with self._steps:
            if self._filling is not None and self._filling.is_running:
                if not self.state.stopped:
                    return self._filling
                self._filling.stop()
            if self._on.unopened:
                raise self._on.refuse("resume", self._on.unopened)
            for side in self.double.sides():
                if side.failure is not None:
                    self._on.reopen(side)
            if self.state.stopped:
                self._keeper.move("resumed", stopped="")
            return None if not self._on.waits_for else self._fill()

    def ingest(
        self,
        files: Mapping[str, Sequence[Path]],
        dispatched_offset: int,
        *,
        start_offset: int = 0,
    ) -> bool:
        """See steps.ingest."""
        with self._steps:
            return ingest(self._on, files, dispatched_offset, start_offset=start_offset)

    # --- jobs ------------------------------------------------------------------------------

    def side_stopped(self, name: SideName, error: BaseException) -> None:
        """See Attendant."""
        self._keeper.stop(error)

    def look(self) -> None:
        """See Attendant: brings up a side that fell behind."""
        self._opener.maintain()
        if not self._begun or self.state.stopped or self._jobs.closed:
            return
        lags = any(not side.joined and side.failure is None for side in self.double.sides())
        if (lags or self.state.pending is not None) and self._steps.acquire(blocking=False):
            try:
                last = self._filling
                # One that a step ended goes on if the step failed.
                failed = last is not None and last.error is not None and not last.is_stopped
                if not self._jobs.closed and not failed:
                    self._fill()
            finally:
                self._steps.release()

    def close(self) -> None:
        """See Attendant: ends all jobs. Repeatable. The next opening continues them."""
        self._jobs.close()
        # A step in progress ends first; it may have started another job.
        with self._steps:
            self._jobs.stop()

    def _fill(self) -> Job:
        """The running backfill, or a new one."""
        if self._filling is None or not self._filling.is_running:
            if self.state.pending is not None and self.double.side(SideName.FILES) is None:
                try:
                    self.double.attach(SideName.FILES, self._opener.files(self.state))
                except (OSError, StoreError) as error:
                    self._keeper.stop(error)
                    raise
            self._filling = self._jobs.begin("backfill", self._fill_work)
        return self._filling

    def _fill_work(self, job: Job) -> None:
        try:
            fill(self._on, job)
        except JobCancelledError:
            if not job.is_stopped:  # otherwise it is ending, for a step or a close
                self._keeper.stop(_CANCELLED)
            raise

    # --- parts of steps --------------------------------------------------------------------

    def _rebuild_files(self) -> Job | None:
        """FINISHED to ROCKSDB, with a job that fills the files."""
        state = self.state
        if state.pending is not None:
            return self.resume() if state.stopped else self._fill()
        if self._on.waits_for:
            raise self._on.refuse("rollback")
        self._opener.remove(SideName.FILES)
        anew = state.rebuilt(SideName.FILES.value) if SideName.FILES.value in state.blamed else {}
        target = Phase.ROCKSDB
        self._keeper.move(f"on the way to {target.value}", pending=target, **anew)
        return self._fill()

    def _check_joined(self, step: str, names: Iterable[SideName]) -> None:
        """Raise unless these sides are joined. Must be called between two dispatches."""
        if not all(map(self.double.is_joined, names)):
            raise self._on.refuse(step)
