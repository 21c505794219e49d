"""Steps of a running store, over gRPC."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from kvcq_client.pb.v1 import migration_pb2 as pb
from kvcq_client.pb.v1 import migration_pb2_grpc
from migration.next_step import NextStep
from server import migration_convert as convert
from server.cli.connection import command_at, on_server
from server.cli.migration.target import POLL_S, job_of, progress_of
from server.cli.output import (
    BadRequestError,
    CannotConnectError,
    CommandError,
    InterruptedCommandError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from google.protobuf.message import Message

    from migration.release import Home
    from migration.routes import SideName
    from migration.routing import RoutingPolicy
    from migration.state import FileLayout
    from server.cli.migration.target import Watch

_TIMEOUT_S = 60.0
_INGEST_TIMEOUT_S = 3600.0


@contextmanager
def remote_target(server: str) -> Iterator[RemoteTarget]:
    """A running store. Raises CommandError, CannotConnectError."""
    try:
        with grpc.insecure_channel(server) as channel:
            yield RemoteTarget(migration_pb2_grpc.MigrationServiceStub(channel), server)
    except grpc.RpcError as error:
        raise _told(error, server) from error


class RemoteTarget:
    """Steps of a running store."""

    def __init__(self, stub: migration_pb2_grpc.MigrationServiceStub, server: str) -> None:
        self._stub = stub
        self._server = server
        self.notes: list[str] = []

    def _step(self, call: Callable[..., Any], request: Message) -> pb.MigrationStepResponse:
        answer: pb.MigrationStepResponse = call(request, timeout=_TIMEOUT_S)
        self._name_server(answer.status)
        return answer

    def _name_server(self, found: pb.MigrationStatus | pb.MigrationPlan) -> None:
        """The service does not know by which address it was reached."""
        if found.next_command:
            found.next_command = on_server(found.next_command, self._server)

    def again(self, step: str, *options: str) -> str:
        return command_at(self._server, f"migrate {step}", *options)

    def plan(self, layout: FileLayout | None, watch: Watch) -> pb.MigrationPlan:
        watch("measuring", 0.0, "")
        found: pb.MigrationPlan = self._stub.PlanMigration(
            pb.PlanMigrationRequest(), timeout=_TIMEOUT_S
        )
        self._name_server(found)
        return found

    def status(self) -> pb.MigrationStatus:
        found: pb.MigrationStatus = self._stub.GetMigrationStatus(
            pb.GetMigrationStatusRequest(), timeout=_TIMEOUT_S
        )
        self._name_server(found)
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
            step = NextStep("resume", ("--rebuild", rebuild.value), stopped_only=True)
            reason = "a side is rebuilt while the store is stopped"
            raise CommandError(reason, step.sentence(None))
        return self._step(self._stub.ResumeMigration, pb.ResumeRequest())

    def release(self, home: Home | None) -> list[str]:
        hint = NextStep("release", stopped_only=True).sentence(None)
        raise CommandError("a running store is not given back", hint)

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
                time.sleep(POLL_S)
            except KeyboardInterrupt:
                raise InterruptedCommandError(
                    f"interrupted; the {job.kind} continues in the service",
                    "`kvcq migrate cancel` would end it",
                    command=self.again("status", "--wait"),
                ) from None


def _told(error: grpc.RpcError, server: str) -> CommandError:
    code, message = error.code(), error.details() or ""
    info = error_details_pb2.ErrorInfo()
    # Every error of a stub's call is a call as well; the stubs' types do not say so.
    status = rpc_status.from_call(cast("grpc.Call", error))
    for detail in status.details if status is not None else ():
        detail.Unpack(info)
    if code is grpc.StatusCode.UNAVAILABLE:
        if info.reason:
            return CannotConnectError(message, "try again in a moment", code=info.reason)
        hint = "is it running? A stopped store is named by its DIRECTORY"
        return CannotConnectError(f"cannot reach a server at {server}", hint)
    if info.reason == "ILLEGAL_STEP":
        command = info.metadata.get("nextCommand")
        return CommandError(
            message,
            info.metadata.get("hint"),
            command=None if command is None else on_server(command, server),
            code=info.reason,
        )
    if code is grpc.StatusCode.INVALID_ARGUMENT:
        return BadRequestError(message, field=info.metadata["field"])
    look = command_at(server, "migrate status")
    if info.reason:
        return CommandError(message, command=look, code=info.reason)
    # Without a reason these are gRPC's words, which say nothing of what to do.
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        text = f"{server} did not answer in time"
        return CommandError(text, "is it busy?", command=look, code=code.name)
    hint = "is that the address of a kvcq server, of this version?"
    return CommandError(f"{server} does not answer as a kvcq server: {code.name}", hint)
