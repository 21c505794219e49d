"""Steps of a running store, over gRPC."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from kvcq_client import JobStatus
from migration.next_step import NextStep
from server.cli.migration.target import POLL_S, progress_of
from server.cli.online import command_at, connect, on_server
from server.cli.terminal import CommandError, InterruptedCommandError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcq_client import Client, Difference, Job, MigrationPlan, MigrationStatus, MigrationStep
    from migration.release import Home
    from migration.state import FileLayout, SideName
    from server.cli.migration.target import Watch

N = TypeVar("N", "MigrationStatus", "MigrationPlan")

_TIMEOUT_S = 60.0


@contextmanager
def remote_target(server: str, watch: Watch) -> Iterator[RemoteTarget]:
    """A running store. Turns the client's errors into CommandError."""
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

    def _taken(self, step: MigrationStep) -> MigrationStep:
        return replace(step, status=self._with_server(step.status))

    def _with_server(self, found: N) -> N:
        """Add --server to the next commands: the service does not know the address that was
        used."""
        if found.next_command is None:
            return found
        return replace(found, next_command=on_server(found.next_command, self._server))

    def again(self, step: str, *options: str) -> str:
        return command_at(self._server, f"migrate {step}", *options)

    def plan(self, layout: FileLayout | None) -> MigrationPlan:
        self._watch("measuring", 0.0, "")
        return self._with_server(self._migration.plan())

    def status(self) -> MigrationStatus:
        return self._with_server(self._migration.status())

    def start(
        self,
        layout: FileLayout | None,
        *,
        adopt_only: bool,
        reclaim_unexpired: bool | None,
    ) -> MigrationStep:
        return self._taken(self._migration.start())

    def verify(self, key_every: int) -> MigrationStep:
        return self._taken(self._migration.verify(key_every))

    def differences(self, limit: int) -> list[Difference]:
        return self._migration.differences(limit)

    def cutover(self) -> MigrationStep:
        return self._taken(self._migration.cutover())

    def rollback(self, *, to_files: bool) -> MigrationStep:
        if to_files:
            step = NextStep("rollback", ("--to-files",), stopped_only=True)
            reason = "files of a store without a migration can only be created while it is stopped"
            raise CommandError(reason, step.sentence(None))
        return self._taken(self._migration.rollback())

    def finish(self) -> MigrationStep:
        return self._taken(self._migration.finish())

    def resume(self, rebuild: SideName | None) -> MigrationStep:
        if rebuild is not None:
            step = NextStep("resume", ("--rebuild", rebuild.value), stopped_only=True)
            reason = "a side can only be rebuilt while the store is stopped"
            raise CommandError(reason, step.sentence(None))
        return self._taken(self._migration.resume())

    def release(self, home: Home | None) -> list[str]:
        hint = NextStep("release", stopped_only=True).sentence(None)
        raise CommandError("a running store cannot be handed back", hint)

    def wait(self, job_id: str) -> Job:
        """Wait for the job to end."""
        while (job := self._jobs.get(job_id)).status is JobStatus.RUNNING:
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
