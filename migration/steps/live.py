"""The migration of a store that is open: its steps, and the jobs that go on meanwhile.

Each step changes migration.json once, at a dispatch boundary where reads or writes change with
it. What takes long is a job; a store that is opened again goes on with it by itself.
"""

from __future__ import annotations

import logging
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from migration.broker_config import write_back
from migration.errors import JobCancelledError, UnknownJobError, VerificationError
from migration.fill import Filler, LogFeed
from migration.jobs import Job
from migration.plan import end_of_own_rocksdb
from migration.state import (
    BEFORE_CUTOVER,
    BrokenOff,
    Phase,
    Route,
    Routes,
    SideName,
    Target,
    VerifyResult,
    may_gain,
)
from migration.steps.verify import Verification, VerifyOptions
from store.errors import InvalidArgumentError, StoreBusyError, StoreClosedError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from migration.broker_config import WrittenBack
    from migration.fill import GainedPart
    from migration.sides import DoubleQueueStore, IngestingStore, Side, SideOpener
    from migration.state import MigrationState, RoutingPolicy, StateKeeper
    from migration.steps.verify import Difference, Verified
    from store.clock import Clock
    from store.message_store import MessageStore

logger = logging.getLogger(__name__)

_CANCELLED = "cancelled by an operator"
_BUSY_WAIT_S = 0.02
_KEPT_JOBS = 20
_LOOK_AHEAD = 1024


class LiveMigration:
    """Owner of the steps and jobs of one open store.

    Thread: any. Locks: `_steps`, outermost, held for a step. No job takes it: a step may wait for
    the end of one. What a job changes in the state it changes at a dispatch boundary, where it
    finds what the steps before it left.
    """

    def __init__(
        self,
        store: MessageStore,
        double: DoubleQueueStore,
        keeper: StateKeeper,
        opener: SideOpener,
        clock: Clock,
    ) -> None:
        # Constant after construction.
        self._store = store
        self._double = double
        self._keeper = keeper
        self._opener = opener
        self._clock = clock
        self._steps = threading.RLock()
        # Guarded by _steps; read freely.
        self._jobs: dict[str, Job] = {}
        self._filling: Job | None = None
        self._verifying: Job | None = None
        self._closed = False
        #: Rows of the last verification in this process, at most VerifyOptions.kept.
        self.differences: Sequence[Difference] = ()
        double.closers.append(self.close)
        double.on_maintain = self.look

    # --- looking ---------------------------------------------------------------------------

    @property
    def state(self) -> MigrationState:
        return self._keeper.state

    @property
    def double(self) -> DoubleQueueStore:
        return self._double

    def sides(self) -> list[SideName]:
        """Sides in use."""
        return [name for name in SideName if self._double.side(name) is not None]

    def job(self, job_id: str) -> Job:
        """Raises UnknownJobError."""
        try:
            return self._jobs[job_id]
        except KeyError:
            raise UnknownJobError(job_id) from None

    def jobs(self) -> list[Job]:
        """Jobs of this process, oldest first."""
        return list(self._jobs.values())

    @property
    def filling(self) -> Job | None:
        """The backfill that runs, or ran last."""
        return self._filling

    @property
    def verifying(self) -> Job | None:
        return self._verifying

    @property
    def is_settled(self) -> bool:
        """Both sides are joined, and no change of routes is under way."""
        state = self.state
        lagging = any(
            side is not None and not side.joined for side in map(self._double.side, SideName)
        )
        return not lagging and state.pending is None and not state.stopped

    # --- steps -----------------------------------------------------------------------------

    def start(self, routing: RoutingPolicy | None = None) -> Job:
        """FILES to DOUBLE_WRITE: RocksDB takes what comes in, and a job fills in the history.

        In DOUBLE_WRITE already: the job that runs. Raises IllegalStepError.
        """
        with self._steps:
            state = self.state
            if state.phase is Phase.FILES:
                # What an earlier attempt left is not trusted.
                self._opener.remove(SideName.ROCKSDB)
                store = self._opener.rocksdb()
                policy = routing or state.routing
                try:
                    self._double.attach(SideName.ROCKSDB, store)
                    self._double.change_routes(
                        lambda _: self._moved("double write began", Phase.DOUBLE_WRITE, policy)
                    )
                except BaseException:
                    if self._double.side(SideName.ROCKSDB) is not None:
                        self._double.detach(SideName.ROCKSDB)
                    store.close()
                    raise
            elif state.phase is not Phase.DOUBLE_WRITE:
                raise self._keeper.refuse("start", "the double write has begun long since")
            return self._fill()

    def verify(self, options: VerifyOptions | None = None) -> Job:
        """A job compares log, files and RocksDB below the cut point of now.

        In DOUBLE_WRITE it ends in VERIFIED if there is no difference. Raises IllegalStepError.
        """
        with self._steps:
            if self._verifying is not None and self._verifying.is_running:
                return self._verifying
            if not self.is_settled:
                raise self._keeper.refuse("verify", self._unsettled())
            wanted = options or VerifyOptions()
            # Replaced when it ends: what is left of it is left by a killed process.
            self._keeper.move("a verification began", broken_off=BrokenOff("the process ended"))
            self._verifying = self._begin("verify", lambda job: self._verify(job, wanted))
            return self._verifying

    def cutover(self) -> MigrationState:
        """VERIFIED to ROCKSDB: reads come from RocksDB from one dispatch to the next.

        Idempotent. Raises IllegalStepError.
        """
        with self._steps:
            state = self.state
            if state.phase is Phase.ROCKSDB:
                return state
            if state.phase is not Phase.VERIFIED:
                raise self._keeper.refuse("cutover", "it takes a verification without a difference")
            if not self.is_settled:
                raise self._keeper.refuse("cutover", self._unsettled())

            def cut(_: int) -> Routes:
                # Looked at again, now that no dispatch can change it.
                if not self._double.is_joined(SideName.ROCKSDB):
                    raise self._keeper.refuse("cutover", self._unsettled())
                return self._moved("reads come from RocksDB", Phase.ROCKSDB)

            self._double.change_routes(cut)
            return self.state

    def rollback(self) -> Job | None:
        """One phase back. The job when files have to be filled first; None when it is done.

        ROCKSDB to DOUBLE_WRITE: reads come from files. DOUBLE_WRITE, VERIFIED to FILES: RocksDB is
        removed. FINISHED to ROCKSDB: files are made again from the log. Raises IllegalStepError.
        """
        with self._steps:
            state = self.state
            if state.phase in (Phase.DOUBLE_WRITE, Phase.VERIFIED):
                self._stop_jobs()
                self._double.change_routes(
                    lambda _: self._moved(
                        _taken_back("RocksDB is given up", state),
                        Phase.FILES,
                        pending=None,
                        verified=None,
                        broken_off=None,
                    )
                )
                self._drop(SideName.ROCKSDB)
                self.give_config_back()
                return None
            if state.phase is Phase.ROCKSDB:
                if state.pending is None and not self._double.is_joined(SideName.FILES):
                    raise self._keeper.refuse("rollback", self._unsettled())
                if SideName.FILES.value in state.blamed:
                    raise self._keeper.refuse("rollback", "the files differ from the log")
                return self._change(Target(Phase.DOUBLE_WRITE, state.routing))
            if state.phase is Phase.FINISHED:
                return self._change(Target(Phase.ROCKSDB, state.routing))
            raise self._keeper.refuse("rollback", "everything is in files already")

    def finish(self) -> MigrationState:
        """ROCKSDB to FINISHED: rows that nobody reads any more are removed. Repeatable.

        Raises IllegalStepError.
        """
        with self._steps:
            state = self.state
            if state.phase not in (Phase.ROCKSDB, Phase.FINISHED):
                raise self._keeper.refuse("finish", "reads come from files still")
            if state.pending is not None:
                raise self._keeper.refuse("finish", self._unsettled())
            if SideName.ROCKSDB.value in state.blamed:
                # The files are what is right, or all there is to read.
                raise self._keeper.refuse("finish", "RocksDB differs from the log")
            if state.phase is Phase.ROCKSDB:
                self._double.change_routes(
                    lambda _: self._moved("finished", Phase.FINISHED, stopped="")
                )
            if not self.state.needs_files:
                if self._double.side(SideName.FILES) is not None:
                    self._stop_jobs()
                    self._drop(SideName.FILES)
            else:
                self._purge()
            return self.state

    def set_routing(self, routing: RoutingPolicy) -> Job | None:
        """The policy takes effect: at once where no side gains anything, else after a job.

        Raises IllegalStepError while another change is under way.
        """
        with self._steps:
            state = self.state
            if state.pending is not None and state.pending.routing != routing:
                raise self._keeper.refuse("routing", "another change is under way")
            phase = state.phase
            if phase is Phase.VERIFIED and routing != state.routing:
                phase = Phase.DOUBLE_WRITE  # what was verified is not what is there any more
            return self._change(Target(phase, routing))

    def cancel(self, job_id: str = "") -> None:
        """The job, or all that run, end soon. A backfill goes on with `resume`.

        Raises UnknownJobError, and IllegalStepError when nothing runs.
        """
        with self._steps:
            wanted = [self.job(job_id)] if job_id else self.jobs()
            running = [job for job in wanted if job.is_running]
            if not running:
                reason = f"job {job_id} has ended" if job_id else "no job runs"
                raise self._keeper.refuse("cancel", f"{reason}: there is nothing to cancel")
            for job in running:
                job.cancel()
                if job is self._filling:
                    self._keeper.stop(_CANCELLED)

    def resume(self) -> Job | None:
        """Go on after a stop: a side that failed is opened again, and brought up from its
        watermark. None when there is nothing to do."""
        with self._steps:
            if self._filling is not None and self._filling.is_running:
                if not self.state.stopped:
                    return self._filling
                self._filling.stop()
            for name in SideName:
                side = self._double.side(name)
                if side is not None and side.failure is not None:
                    self._reopen(side)
            if self.state.stopped:
                self._keeper.move("resumed", stopped="")
            return None if self.is_settled else self._fill()

    def ingest(
        self,
        files: Mapping[str, Sequence[Path]],
        dispatched_offset: int,
        *,
        start_offset: int = 0,
        deletions: int | None = None,
    ) -> bool:
        """Sorted files, by family, made from all of the log in start_offset..dispatched_offset.

        Whether they were needed. `deletions`: how many topics had been deleted when they were
        made; with more by now they are refused, since they may hold what was deleted.
        Raises InvalidArgumentError, IllegalStepError. Durable on return; repeatable.
        """
        for path in (each for paths in files.values() for each in paths):
            if not path.is_file():
                raise InvalidArgumentError("files", f"{path} is no file on this machine")
        with self._steps:
            side = self._double.side(SideName.ROCKSDB)
            if side is None:
                raise self._keeper.refuse("ingest", "RocksDB is not in use")
            with side.filling:
                at = side.store.dispatched_offset
                if dispatched_offset <= at:
                    return False
                if side.joined:
                    raise self._keeper.refuse("ingest", "RocksDB has all of the log already")
                if start_offset > max(at, self._store.log.start_offset):
                    raise InvalidArgumentError(
                        "start_offset", f"the files begin at {start_offset}, RocksDB ends at {at}"
                    )
                if dispatched_offset > self._store.flushed_offset:
                    raise InvalidArgumentError(
                        "dispatched_offset", f"{dispatched_offset} is beyond the durable log"
                    )
                if deletions is not None and deletions != self._double.applied_deletions:
                    raise self._keeper.refuse("ingest", "topics were deleted since they were made")
                store: IngestingStore = side.store  # type: ignore[assignment] # RocksDB's is one
                store.ingest(files, dispatched_offset, move=False)
                return True

    # --- jobs ------------------------------------------------------------------------------

    def look(self) -> None:
        """Called about every second: a side that fell behind is brought up again."""
        if self.state.stopped or self._closed:
            return
        lagging = any(
            side is not None and not side.joined and side.failure is None
            for side in map(self._double.side, SideName)
        )
        if (lagging or self.state.pending is not None) and self._steps.acquire(blocking=False):
            try:
                failed = self._filling is not None and self._filling.error is not None
                if not self._closed and not failed:
                    self._fill()
            finally:
                self._steps.release()

    def close(self) -> None:
        """End all jobs. Repeatable. Opening again goes on with them."""
        self._closed = True
        for job in self.jobs():
            job.cancel()
        # A step under way ends first; it may have begun one more job.
        with self._steps:
            self._stop_jobs()

    def _begin(self, kind: str, work: Callable[[Job], None]) -> Job:
        if self._closed:
            raise StoreClosedError("the migration")
        job = Job(kind, self._clock, work)
        while len(self._jobs) >= _KEPT_JOBS:
            del self._jobs[next(iter(self._jobs))]
        self._jobs[job.job_id] = job
        return job.start()

    def _fill(self) -> Job:
        """The backfill that runs, or a new one."""
        if self._filling is None or not self._filling.is_running:
            self._filling = self._begin("backfill", self._fill_all)
        return self._filling

    def _fill_all(self, job: Job) -> None:
        filler = Filler(self._store, self._double, job)
        for name in SideName:
            side = self._double.side(name)
            if side is not None and not side.joined and side.failure is None:
                with self._stopping(side):
                    filler.catch_up(name)
        target = self.state.pending
        if target is None:
            return
        routes = Routes(target.phase, target.routing)
        try:
            parts = [
                filler.gain(name, routes)
                for name in SideName
                if may_gain(self._double.routes, routes, name)
            ]
            self._apply(target, parts, job)
        except JobCancelledError:
            raise
        except Exception as error:
            self._keeper.stop(str(error))
            raise
        finally:
            for name in SideName:
                self._double.hold_log(name, None)

    def _apply(self, target: Target, parts: Sequence[GainedPart], job: Job) -> None:
        """What was gained is filled to the dispatch boundary, and the routes change there."""

        def change(boundary: int) -> Routes:
            for part in parts:
                part.finish(boundary)
            routes = Routes(target.phase, target.routing)
            for name in SideName:
                if routes.required(name) and not self._double.is_joined(name):
                    raise StoreBusyError(f"the {name.value} side lags")
            kept = target.routing == self.state.routing and target.phase not in BEFORE_CUTOVER
            verified = self.state.verified if kept else None
            event = f"routes changed, now {target.phase.value}"
            return self._moved(
                event if kept else _taken_back(event, self.state),
                target.phase,
                target.routing,
                pending=None,
                verified=verified,
            )

        while True:
            try:
                with ExitStack() as held:
                    for part in parts:
                        held.enter_context(part.side.filling)
                    self._double.change_routes(change)
                for part in parts:
                    job.report(part.at, part.at, part.finished_rows)
                return
            except StoreBusyError:
                job.pause(_BUSY_WAIT_S)

    @contextmanager
    def _stopping(self, side: Side) -> Iterator[None]:
        """What goes wrong inside leaves a side behind that nothing is read from."""
        try:
            yield
        except JobCancelledError:
            raise
        except Exception as error:
            if self._double.routes.required(side.name):
                self._keeper.stop(str(error))
            else:
                self._double.stop_side(side, error)
            raise

    def _verify(self, job: Job, options: VerifyOptions) -> None:
        compared = self._double.routes
        try:
            try:
                found = Verification(self._store, self._double, job, options).run()
            except (JobCancelledError, StoreBusyError):
                raise
            except Exception as error:
                self._verification_failed(job, compared, error)
                raise
            self._verification_ended(job, compared, found)
        except (JobCancelledError, StoreBusyError) as error:
            # These say nothing of what is stored.
            self._keeper.move(f"verification broke off: {error}", broken_off=BrokenOff(str(error)))
            raise

    def _verification_ended(self, job: Job, compared: Routes, found: Verified) -> None:
        result = VerifyResult(
            found.cut_offset,
            found.compared_units,
            found.difference_count,
            self._clock.now_ms(),
            " ".join(sorted({each.side for each in found.differences})),
        )
        event = f"verified below {found.cut_offset}: {found.difference_count} differences"

        def settle(_: int) -> Routes:
            phase = self.state.phase
            if found.difference_count == 0 and phase is Phase.DOUBLE_WRITE and self.is_settled:
                phase = Phase.VERIFIED
            elif found.difference_count and phase is Phase.VERIFIED:
                phase = Phase.DOUBLE_WRITE
            return self._moved(event, phase, verified=result, broken_off=None)

        self._at_boundary(job, compared, settle)
        self.differences = found.differences

    def _verification_failed(self, job: Job, compared: Routes, error: Exception) -> None:
        """What an earlier one found does not hold any more."""
        event = f"verification broke off: {error}"
        unread = error.side if isinstance(error, VerificationError) else ""

        def take_back(_: int) -> Routes:
            phase, changes = self.state.phase, dict[str, Any]()
            if phase in (Phase.DOUBLE_WRITE, Phase.VERIFIED):
                phase, changes["verified"] = Phase.DOUBLE_WRITE, None
            return self._moved(event, phase, broken_off=BrokenOff(str(error), unread), **changes)

        self._at_boundary(job, compared, take_back)
        self.differences = ()

    def _at_boundary(self, job: Job, compared: Routes, make: Callable[[int], Routes]) -> None:
        """The state becomes what `make` says, if the verification is still of what is there.

        Raises JobCancelledError, and StoreBusyError when a step has changed the routes.
        """

        def change(boundary: int) -> Routes:
            job.check()
            if self._double.routes is not compared:
                raise StoreBusyError("the routes changed meanwhile: verify again")
            return make(boundary)

        self._double.change_routes(change)

    # --- parts of steps --------------------------------------------------------------------

    def _moved(
        self,
        event: str,
        phase: Phase,
        routing: RoutingPolicy | None = None,
        **changes: Any,  # noqa: ANN401 - fields of the state
    ) -> Routes:
        """The state is on disk, and these are its routes."""
        if routing is not None:
            changes["routing"] = routing
        state = self._keeper.move(event, phase=phase, **changes)
        return Routes(state.phase, state.routing)

    def _change(self, target: Target) -> Job | None:
        """Go to the target's routes: at once when no side gains names by it."""
        state = self.state
        if state.pending == target:
            return self._fill()
        if target == Target(state.phase, state.routing):
            return None
        routes = Routes(target.phase, target.routing)
        if state.phase is not Phase.FILES and not self.is_settled:
            raise self._keeper.refuse("this change", self._unsettled())
        missing = target.phase is not Phase.FINISHED or target.routing.uses(Route.FILES)
        missing = missing and self._double.side(SideName.FILES) is None
        gains = any(may_gain(self._double.routes, routes, name) for name in SideName)
        if not missing and not gains:
            event = f"routes changed, now {target.phase.value}"
            changes: dict[str, Any] = {}
            if target.phase in BEFORE_CUTOVER or target.routing != state.routing:
                event, changes["verified"] = _taken_back(event, state), None
            self._double.change_routes(
                lambda _: self._moved(event, target.phase, target.routing, **changes)
            )
            return None
        anew: dict[str, Any] = {}
        if missing:
            self._opener.remove(SideName.FILES)
            if SideName.FILES.value in state.blamed:
                anew = state.made_anew(SideName.FILES.value)
        self._keeper.move(f"on the way to {target.phase.value}", pending=target, **anew)
        if missing:
            self._double.attach(SideName.FILES, self._opener.files(self.state))
        return self._fill()

    def _drop(self, name: SideName) -> None:
        self._double.detach(name).close()
        self._opener.remove(name)

    def _purge(self) -> None:
        """Rows that a side keeps of names it does not take any more are removed."""
        routes = self._double.routes
        for name in SideName:
            side = self._double.side(name)
            if side is None or side.failure is not None:
                continue
            for topic in side.store.names():
                if not routes.takes(name, topic):
                    with side.filling:
                        side.store.purge_topic(topic)

    def _reopen(self, side: Side) -> None:
        """A side that failed, opened again as it is on disk, or anew where the log has a gap.

        Its failure may be one of the open database or files alone, such as a failed fsync.
        """
        store = self._double.detach(side.name)
        try:
            store.close()
        except (StoreError, OSError):
            logger.exception("the %s side was not closed in order", side.name.value)
        fresh = self._opener.open(side.name, self.state)
        if fresh.dispatched_offset < self._store.log.start_offset:
            # Files take no gap, and rows from before one are of no use to RocksDB.
            fresh.close()
            self._opener.remove(side.name)
            fresh = self._opener.open(side.name, self.state)
        else:
            for mark in sorted(self._store.metadata.delete_marks(), key=lambda each: each.sequence):
                if mark.sequence > fresh.applied_deletions:
                    fresh.delete_topic(mark.topic, mark.sequence)
        blamed = side.name.value in self.state.blamed
        if fresh.dispatched_offset == 0 and (blamed or self.state.phase is Phase.VERIFIED):
            event = f"made anew: {side.name.value}; what was verified is gone"
            changes = self.state.made_anew(side.name.value)
            self._double.change_routes(lambda _: self._moved(event, **changes))
        self._double.attach(side.name, fresh)

    def _stop_jobs(self) -> None:
        for job in self.jobs():
            job.stop()

    def _unsettled(self) -> str:
        """Why a step has to wait."""
        state = self.state
        if state.stopped:
            return f"it was stopped ({state.stopped})"
        if state.pending is not None:
            return "a change of routes is under way"
        for name in SideName:
            side = self._double.side(name)
            if side is not None and not side.joined:
                left = self._double.dispatched_offset - side.store.dispatched_offset
                return f"the {name.value} side is {left} bytes of log behind"
        return "RocksDB is not in use" if state.phase is Phase.FILES else "a side is not ready"

    def rocketmqs_rocksdb_is_behind(self) -> bool:
        """Whether RocketMQ's own RocksDB of queues is there, and the log has units behind it.

        Raises EngineFailedError when it cannot be read.
        """
        end = end_of_own_rocksdb(self._keeper.root)
        if end is None:
            return False
        feed = LogFeed(self._store)
        at, log_end = max(end, feed.start_offset), feed.appended_offset
        while at < log_end:
            requests, at = feed.read(at, log_end, _LOOK_AHEAD)
            if any(request.in_queue for request in requests):
                return True
        return False

    def give_config_back(self) -> WrittenBack | None:
        """RocketMQ's `config/` says what topics and committed offsets there are.

        Raises StoreFormatError, OSError, EngineFailedError.
        """
        written = write_back(
            self._keeper.root,
            self._store.metadata,
            self.state.config,
            self._clock.now_ms(),
        )
        if written is not None:
            self._keeper.move("; ".join(written.lines()))
        return written


def _taken_back(event: str, state: MigrationState) -> str:
    """The event, and that what was verified is not what is there any more."""
    if state.verified is None:
        return event
    return f"{event}; the verification is invalidated: verify again before the next cutover"
