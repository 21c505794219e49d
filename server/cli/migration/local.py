"""Steps of a stopped store, in this process."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from kvcq_client import Difference, Job, MigrationPlan, MigrationStatus, MigrationStep
from kvcq_client.wire import from_wire
from migration.errors import JobCancelledError
from migration.migrator import Migrator, begin_on_rocksdb, open_migrator
from migration.next_step import NextStep
from migration.plan import plan_directory
from migration.release import Home, release
from migration.repair import set_side_aside
from migration.steps import adopt
from server.cli.migration.target import POLL_S, progress_of
from server.cli.on_disk import raising_command_errors
from server.cli.terminal import CommandError, InterruptedCommandError
from server.process import prepare_to_open_stores
from server.wire import differences_out, job_out, plan_out, status_out

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from migration.jobs import Job as RunningJob
    from migration.state import FileLayout, SideName
    from migration.steps import LiveMigration
    from server.cli.migration.target import Watch


@contextmanager
def local_target(root: Path, watch: Watch) -> Iterator[LocalTarget]:
    """A stopped store, which is opened when a step needs it. Raises CommandError."""
    prepare_to_open_stores()
    target = LocalTarget(root, watch)
    locked = "a server has it open: name its address instead, with --server HOST:PORT"
    with raising_command_errors(root, locked=locked):
        try:
            yield target
        except JobCancelledError as error:
            again = target.again("resume")
            raise CommandError(str(error), command=again, code="JOB_CANCELLED") from error
        finally:
            target.close()


class LocalTarget:
    """Steps of a stopped store. The first step that needs the store opens it; it stays open until
    the end. `local_target` turns errors of the steps into CommandError."""

    def __init__(self, root: Path, watch: Watch) -> None:
        self._root = root
        self._watch = watch
        self._progress = lambda step, share: watch(step, share, "")
        self._opened: Migrator | None = None
        self._opening = ExitStack()
        #: Notes for operators about what the steps have done.
        self.notes: list[str] = []

    def _migrator(self) -> Migrator:
        if self._opened is None:
            opening = open_migrator(self._root, self._progress)
            self._opened = self._opening.enter_context(opening)
        return self._opened

    def close(self) -> None:
        self._opened = None
        self._opening.close()

    def _answer(self, job: RunningJob | None) -> MigrationStep:
        return MigrationStep(None if job is None else job.job_id, self.status())

    def plan(self, layout: FileLayout | None) -> MigrationPlan:
        found = plan_directory(self._root, layout, self._progress)
        return from_wire(MigrationPlan, plan_out(found, self._root))

    def status(self) -> MigrationStatus:
        return from_wire(MigrationStatus, status_out(self._migrator().status(), self._root))

    def again(self, step: str, *options: str) -> str:
        """The command for a step on the same store."""
        return NextStep(step, options).command(self._root) or ""

    def start(
        self,
        layout: FileLayout | None,
        *,
        adopt_only: bool,
        reclaim_unexpired: bool | None,
    ) -> MigrationStep:
        adopt(
            self._root,
            layout=layout,
            progress=self._progress,
            tell=self.notes.append,
            reclaim_unexpired=reclaim_unexpired,
        )
        if adopt_only:
            return self._answer(None)
        return self._answer(self._migrator().live_for("start").start())

    def verify(self, key_every: int) -> MigrationStep:
        return self._answer(self._settled("verify").verify(key_every))

    def differences(self, limit: int) -> list[Difference]:
        found = self._migrator().live.differences[:limit]
        return [from_wire(Difference, one) for one in differences_out(found).differences]

    def cutover(self) -> MigrationStep:
        self._settled("cutover").cutover()
        return self._answer(None)

    def rollback(self, *, to_files: bool) -> MigrationStep:
        if not self._migrator().has_live:
            if not to_files:
                raise CommandError(
                    "rollback is not possible: this store has no migration to take back, "
                    "its queues are only in RocksDB",
                    "to hand it to a RocketMQ broker, or to write queue files beside "
                    "RocksDB, create the files from the log (a directory and files for each "
                    "queue)",
                    command=self.again("rollback", "--to-files"),
                    code="ILLEGAL_STEP",
                )
            # Opened before the store had a migration, to read its status: open it again.
            self.close()
            begin_on_rocksdb(self._root)
        return self._answer(self._settled("rollback").rollback())

    def finish(self) -> MigrationStep:
        self._settled("finish").finish()
        return self._answer(None)

    def resume(self, rebuild: SideName | None) -> MigrationStep:
        if rebuild is not None:
            set_side_aside(self._root, rebuild)
        return self._answer(self._migrator().live_for("resume").resume())

    def release(self, home: Home | None) -> list[str]:
        return release(self._root, self._progress, home)

    def wait(self, job_id: str) -> Job:
        """Wait for the job to end."""
        job = self._migrator().live.job(job_id)
        try:
            while not job.wait(POLL_S):
                self._watch(*progress_of(_job(job)))
        except KeyboardInterrupt:
            job.stop()
            step, how = ("verify", "restarts") if job.kind == "verify" else ("resume", "continues")
            raise InterruptedCommandError(
                f"interrupted; the next command {how} the {job.kind}", command=self.again(step)
            ) from None
        return _job(job)

    def _settled(self, step: str) -> LiveMigration:
        """Wait for work that opening the store has resumed."""
        live = self._migrator().live_for(step)
        if live.filling is not None:
            live.filling.wait()
        return live


def _job(job: RunningJob) -> Job:
    return from_wire(Job, job_out(job.view()))
