"""Steps of a running store, over gRPC."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import jobs_pb2 as jobs_pb
from kvcq_client.pb.v1 import migration_pb2 as pb
from migration.next_step import NextStep
from server.cli.migration.target import POLL_S, progress_of
from server.cli.online import command_at, connect, on_server
from server.cli.terminal import CommandError, InterruptedCommandError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcq_client import Client
    from migration.release import Home
    from migration.state import FileLayout, SideName
    from server.cli.migration.target import Watch

_TIMEOUT_S = 60.0


@contextmanager
def remote_target(server: str, watch: Watch) -> Iterator[RemoteTarget]:
    """A running store. Raises CommandError for what the client raises."""
    with connect(server, _TIMEOUT_S) as client:
        yield RemoteTarget(client, server, watch)


class RemoteTarget:
    """Steps of a running store. Each raises CommandError."""

    def __init__(self, client: Client, server: str, watch: Watch) -> None:
        self._migration = client.migration
        self._jobs = client.jobs
        self._server = server
        self._watch = watch
        self.notes: list[str] = []

    def _taken(self, step: pb.MigrationStepResponse) -> pb.MigrationStepResponse:
        self._name_server(step.status)
        return step

    def _name_server(self, found: pb.MigrationStatus | pb.MigrationPlan) -> None:
        """The service does not know by which address it was reached."""
        if found.next_command:
            found.next_command = on_server(found.next_command, self._server)

    def again(self, step: str, *options: str) -> str:
        return command_at(self._server, f"migrate {step}", *options)

    def plan(self, layout: FileLayout | None) -> pb.MigrationPlan:
        self._watch("measuring", 0.0, "")
        found = self._migration.plan()
        self._name_server(found)
        return found

    def status(self) -> pb.MigrationStatus:
        found = self._migration.status()
        self._name_server(found)
        return found

    def start(
        self,
        layout: FileLayout | None,
        *,
        adopt_only: bool,
        reclaim_unexpired: bool | None,
    ) -> pb.MigrationStepResponse:
        return self._taken(self._migration.start())

    def verify(self, key_every: int) -> pb.MigrationStepResponse:
        return self._taken(self._migration.verify(key_every))

    def differences(self, limit: int) -> list[pb.Difference]:
        return self._migration.differences(limit)

    def cutover(self) -> pb.MigrationStepResponse:
        return self._taken(self._migration.cutover())

    def rollback(self, *, to_files: bool) -> pb.MigrationStepResponse:
        if to_files:
            step = NextStep("rollback", ("--to-files",), stopped_only=True)
            reason = "files of a store without a migration can only be created while it is stopped"
            raise CommandError(reason, step.sentence(None))
        return self._taken(self._migration.rollback())

    def finish(self) -> pb.MigrationStepResponse:
        return self._taken(self._migration.finish())

    def resume(self, rebuild: SideName | None) -> pb.MigrationStepResponse:
        if rebuild is not None:
            step = NextStep("resume", ("--rebuild", rebuild.value), stopped_only=True)
            reason = "a side can only be rebuilt while the store is stopped"
            raise CommandError(reason, step.sentence(None))
        return self._taken(self._migration.resume())

    def release(self, home: Home | None) -> list[str]:
        hint = NextStep("release", stopped_only=True).sentence(None)
        raise CommandError("a running store cannot be handed back", hint)

    def wait(self, job_id: str) -> jobs_pb.Job:
        """The job, once it has ended."""
        while (job := self._jobs.get(job_id)).status == jobs_pb.JOB_STATUS_RUNNING:
            self._watch(*progress_of(job))
            try:
                time.sleep(POLL_S)
            except KeyboardInterrupt:
                cancel = command_at(self._server, "job cancel", name=job_id)
                raise InterruptedCommandError(
                    f"interrupted; the {job.kind} job continues on the server",
                    f"`{cancel}` cancels it",
                    command=command_at(self._server, "job watch", name=job_id),
                ) from None
        return job
