"""What `kvcq migrate` works on: a running store over gRPC, or the directory of a stopped one.

Both answer with the same messages, so that the commands need not know which it is.
"""

from __future__ import annotations

import re
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, cast

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from migration.errors import IllegalStepError, JobCancelledError
from migration.migrator import (
    Migrator,
    adopt_directory,
    begin_on_rocksdb,
    open_migrator,
    rebuild_side,
)
from migration.plan import plan_directory
from migration.release import Home, release
from migration.verify import VerifyOptions
from proto.v1 import migration_pb2 as pb
from proto.v1 import migration_pb2_grpc
from server import migration_convert as convert
from server.cli.output import (
    BadRequestError,
    CannotConnectError,
    CommandError,
    InterruptedCommandError,
)
from server.cli.process import prepare_to_open_stores
from server.status import row_of
from store.errors import InvalidArgumentError, StoreError, StoreLockedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from google.protobuf.message import Message

    from migration.jobs import Job
    from migration.routes import SideName
    from migration.routing import RoutingPolicy
    from migration.state import FileLayout

    #: Told what is being done, how much of it, and a remark.
    Watch = Callable[[str, float, str], None]

_TIMEOUT_S = 60.0
_INGEST_TIMEOUT_S = 3600.0
_POLL_S = 0.2


class Target(Protocol):
    """Where the steps are taken. Each raises CommandError."""

    def plan(self, layout: FileLayout | None, watch: Watch) -> pb.MigrationPlan: ...

    def status(self) -> pb.MigrationStatus: ...

    def start(
        self,
        routing: RoutingPolicy | None,
        layout: FileLayout | None,
        watch: Watch,
        *,
        adopt_only: bool,
        reclaim_unexpired: bool | None = None,
    ) -> pb.MigrationStepResponse: ...

    def verify(self, key_every: int) -> pb.MigrationStepResponse: ...

    def differences(self, limit: int) -> list[pb.Difference]: ...

    def cutover(self) -> pb.MigrationStepResponse: ...

    def rollback(self) -> pb.MigrationStepResponse: ...

    def finish(self) -> pb.MigrationStepResponse: ...

    def set_routing(self, routing: RoutingPolicy) -> pb.MigrationStepResponse: ...

    def cancel(self, job_id: str) -> pb.MigrationStepResponse: ...

    def resume(self, rebuild: SideName | None) -> pb.MigrationStepResponse: ...

    def release(self, home: Home | None) -> list[str]: ...

    @property
    def notes(self) -> list[str]:
        """What the steps so far did besides, for people."""
        ...

    def wait(self, job_id: str, watch: Watch) -> pb.MigrationStatus:
        """Until the job ended; the status then."""
        ...


@contextmanager
def remote_target(server: str) -> Iterator[RemoteTarget]:
    """A running store. Raises CommandError, CannotConnectError."""
    try:
        with grpc.insecure_channel(server) as channel:
            yield RemoteTarget(migration_pb2_grpc.MigrationServiceStub(channel))
    except grpc.RpcError as error:
        raise _told(error, server) from error


class RemoteTarget:
    """Steps of a running store."""

    def __init__(self, stub: migration_pb2_grpc.MigrationServiceStub) -> None:
        self._stub = stub
        self.notes: list[str] = []

    def _step(self, call: Callable[..., Any], request: Message) -> pb.MigrationStepResponse:
        answer: pb.MigrationStepResponse = call(request, timeout=_TIMEOUT_S)
        return answer

    def plan(self, layout: FileLayout | None, watch: Watch) -> pb.MigrationPlan:
        watch("measuring", 0.0, "")
        found: pb.MigrationPlan = self._stub.PlanMigration(
            pb.PlanMigrationRequest(), timeout=_TIMEOUT_S
        )
        return found

    def status(self) -> pb.MigrationStatus:
        found: pb.MigrationStatus = self._stub.GetMigrationStatus(
            pb.GetMigrationStatusRequest(), timeout=_TIMEOUT_S
        )
        return found

    def start(
        self,
        routing: RoutingPolicy | None,
        layout: FileLayout | None,
        watch: Watch,
        *,
        adopt_only: bool,
        reclaim_unexpired: bool | None = None,
    ) -> pb.MigrationStepResponse:
        policy = None if routing is None else convert.routing_out(routing)
        request = pb.StartMigrationRequest(routing=policy)
        return self._step(self._stub.StartMigration, request)

    def verify(self, key_every: int) -> pb.MigrationStepResponse:
        request = pb.VerifyMigrationRequest(key_every=key_every)
        return self._step(self._stub.VerifyMigration, request)

    def differences(self, limit: int) -> list[pb.Difference]:
        request = pb.ListDifferencesRequest(limit=limit)
        return list(self._stub.ListDifferences(request, timeout=_TIMEOUT_S).differences)

    def cutover(self) -> pb.MigrationStepResponse:
        return self._step(self._stub.Cutover, pb.CutoverRequest())

    def rollback(self) -> pb.MigrationStepResponse:
        return self._step(self._stub.Rollback, pb.RollbackRequest())

    def finish(self) -> pb.MigrationStepResponse:
        return self._step(self._stub.FinishMigration, pb.FinishRequest())

    def set_routing(self, routing: RoutingPolicy) -> pb.MigrationStepResponse:
        request = pb.SetRoutingRequest(routing=convert.routing_out(routing))
        return self._step(self._stub.SetRouting, request)

    def cancel(self, job_id: str) -> pb.MigrationStepResponse:
        return self._step(self._stub.CancelMigration, pb.CancelRequest(job_id=job_id))

    def resume(self, rebuild: SideName | None) -> pb.MigrationStepResponse:
        if rebuild is not None:
            raise CommandError(
                "a side is rebuilt while the store is stopped",
                f"stop the service, then: kvcq migrate resume DIRECTORY --rebuild {rebuild.value}",
            )
        return self._step(self._stub.ResumeMigration, pb.ResumeRequest())

    def release(self, home: Home | None) -> list[str]:
        raise CommandError("a running store is not given back", "stop the service, name DIRECTORY")

    def ingest(self, request: pb.IngestFilesRequest) -> pb.IngestFilesResponse:
        """Takes as long as copying the files."""
        answer: pb.IngestFilesResponse = self._stub.IngestFiles(request, timeout=_INGEST_TIMEOUT_S)
        return answer

    def wait(self, job_id: str, watch: Watch) -> pb.MigrationStatus:
        while True:
            status = self.status()
            job = job_of(status, job_id)
            if job is None or job.state != pb.JOB_STATE_RUNNING:
                return status
            watch(*progress_of(job))
            try:
                time.sleep(_POLL_S)
            except KeyboardInterrupt:
                raise InterruptedCommandError(
                    f"interrupted; the {job.kind} goes on in the service",
                    "watch it with: kvcq migrate status --wait   (end it: kvcq migrate cancel)",
                ) from None


@contextmanager
def local_target(root: Path, watch: Watch) -> Iterator[LocalTarget]:
    """The directory of a stopped store, opened when a step needs that. Raises CommandError."""
    prepare_to_open_stores()
    target = LocalTarget(root, watch)
    try:
        try:
            yield target
        finally:
            target.close()
    except IllegalStepError as error:
        advice = with_directory(error.next_command, root)
        raise CommandError(str(error), advice, code="ILLEGAL_STEP") from error
    except StoreLockedError as error:
        advice = "a service has it open: give its address instead, with --server HOST:PORT"
        raise CommandError(str(error), advice, code=_code(error)) from error
    except InvalidArgumentError as error:
        raise BadRequestError(str(error), field=error.field) from error
    except JobCancelledError as error:
        advice = f"go on with: kvcq migrate resume {root}"
        raise CommandError(str(error), advice, code=_code(error)) from error
    except StoreError as error:
        # The plan is no help with what it cannot do itself, and the text says what to do.
        advice = "" if target.planning else f"look closer with: kvcq migrate plan {root}"
        raise CommandError(str(error), advice, code=_code(error)) from error


class LocalTarget:
    """Steps of a stopped store; it is open from the first step that needs it to the end."""

    def __init__(self, root: Path, watch: Watch) -> None:
        self._root = root
        self._progress = lambda step, share: watch(step, share, "")
        self._opened: Migrator | None = None
        self._closer: Callable[[], None] | None = None
        self.notes: list[str] = []
        self.planning = False

    def _migrator(self) -> Migrator:
        if self._opened is None:
            opening = open_migrator(self._root, self._progress)
            self._opened = opening.__enter__()
            self._closer = lambda: cast("None", opening.__exit__(None, None, None))
        return self._opened

    def close(self) -> None:
        if self._closer is not None:
            self._closer()
            self._closer = None
        self._opened = None

    def _answer(self, job: Job | None) -> pb.MigrationStepResponse:
        return pb.MigrationStepResponse(
            job_id="" if job is None else job.job_id, status=self.status()
        )

    def plan(self, layout: FileLayout | None, watch: Watch) -> pb.MigrationPlan:
        self.planning = True
        found = convert.plan_out(plan_directory(self._root, layout, self._progress))
        found.next_command = with_directory(found.next_command, self._root)
        return found

    def status(self) -> pb.MigrationStatus:
        found = convert.status_out(self._migrator().status())
        found.next_command = with_directory(found.next_command, self._root)
        return found

    def start(
        self,
        routing: RoutingPolicy | None,
        layout: FileLayout | None,
        watch: Watch,
        *,
        adopt_only: bool,
        reclaim_unexpired: bool | None = None,
    ) -> pb.MigrationStepResponse:
        adopt_directory(
            self._root,
            layout=layout,
            routing=routing,
            progress=self._progress,
            tell=self.notes.append,
            reclaim_unexpired=reclaim_unexpired,
        )
        if adopt_only:
            return self._answer(None)
        return self._answer(self._migrator().start(routing))

    def verify(self, key_every: int) -> pb.MigrationStepResponse:
        options = VerifyOptions(key_every=key_every) if key_every else VerifyOptions()
        return self._answer(self._settled().verify(options))

    def differences(self, limit: int) -> list[pb.Difference]:
        found = self._migrator().differences[:limit]
        return list(convert.differences_out(found).differences)

    def cutover(self) -> pb.MigrationStepResponse:
        self._settled().cutover()
        return self._answer(None)

    def rollback(self) -> pb.MigrationStepResponse:
        if not self._migrator().has_live:
            # A status was asked for before: it is opened again, with a migration now.
            self.close()
            begin_on_rocksdb(self._root)
        return self._answer(self._settled().rollback())

    def finish(self) -> pb.MigrationStepResponse:
        self._settled().finish()
        return self._answer(None)

    def set_routing(self, routing: RoutingPolicy) -> pb.MigrationStepResponse:
        return self._answer(self._settled().set_routing(routing))

    def cancel(self, job_id: str) -> pb.MigrationStepResponse:
        raise CommandError(
            "nothing runs on a stopped store: there is nothing to cancel",
            "a command that works on it ends with Ctrl-C",
            code="ILLEGAL_STEP",
        )

    def resume(self, rebuild: SideName | None) -> pb.MigrationStepResponse:
        if rebuild is not None:
            rebuild_side(self._root, rebuild)
        return self._answer(self._migrator().resume())

    def release(self, home: Home | None) -> list[str]:
        return release(self._root, self._progress, home)

    def wait(self, job_id: str, watch: Watch) -> pb.MigrationStatus:
        job = self._migrator().job(job_id)
        try:
            while not job.wait(_POLL_S):
                watch(*progress_of(convert.job_out(job.status())))
        except KeyboardInterrupt:
            job.stop()
            anew = "begins anew with" if job.kind == "verify" else "goes on with"
            step = "verify" if job.kind == "verify" else "resume"
            raise InterruptedCommandError(
                f"interrupted; the {job.kind} {anew}", f"kvcq migrate {step} {self._root}"
            ) from None
        return self.status()

    def _settled(self) -> Migrator:
        """What an opening went on with by itself is done first: nothing else could bring it on."""
        migrator = self._migrator()
        if migrator.has_live and (job := migrator.live.filling) is not None:
            job.wait()
        return migrator


def with_directory(command: str, root: Path) -> str:
    """What to type next on a directory; without its name it would go to a running store."""
    if str(root) in command:
        return command
    return re.sub(r"kvcq migrate [a-z]+", lambda step: f"{step[0]} {root}", command)


def job_of(status: pb.MigrationStatus, job_id: str) -> pb.MigrationJob | None:
    """The job of that id, or None."""
    return next((job for job in status.jobs if job.job_id == job_id), None)


def progress_of(job: pb.MigrationJob) -> tuple[str, float, str]:
    """Step, share done, and a remark, for a progress bar."""
    remark = f"{job.rows_per_s:,.0f} rows/s"
    if job.HasField("remaining_s"):
        remark += f", {job.remaining_s:,.0f} s left"
    if job.differences:
        remark += f", {job.differences:,} differences"
    return job.step, job.percent / 100, remark


def _code(error: StoreError) -> str:
    """The reason that the service would give for it."""
    row = row_of(error)
    return "" if row is None else row.reason


def _told(error: grpc.RpcError, server: str) -> CommandError:
    code, message = error.code(), error.details() or ""
    info = error_details_pb2.ErrorInfo()
    # Every error of a stub's call is a call as well; the stubs' types do not say so.
    status = rpc_status.from_call(cast("grpc.Call", error))
    for detail in status.details if status is not None else ():
        detail.Unpack(info)
    if code is grpc.StatusCode.UNAVAILABLE:
        advice = "is it running? For a stopped store name its directory: kvcq migrate … DIRECTORY"
        if info.reason:
            return CannotConnectError(message, "try again in a moment", code=info.reason)
        return CannotConnectError(f"cannot reach a server at {server}", advice)
    if info.reason == "ILLEGAL_STEP":
        return CommandError(message, info.metadata["nextCommand"], code=info.reason)
    if code is grpc.StatusCode.INVALID_ARGUMENT:
        return BadRequestError(message, field=info.metadata["field"])
    if info.reason == "UNKNOWN_JOB":
        return CommandError(message, "see the jobs: kvcq migrate status", code=info.reason)
    if info.reason:
        return CommandError(message, "look at: kvcq migrate status", code=info.reason)
    # Without a reason these are gRPC's words, which say nothing of what to do.
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        advice = "is it busy? Look with: kvcq migrate status"
        return CommandError(f"{server} did not answer in time", advice, code=code.name)
    advice = "is that the address of a kvcq server, of this version?"
    return CommandError(f"{server} does not answer as a kvcq server: {code.name}", advice)
