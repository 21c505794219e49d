"""The steps of a migration. Values are the messages of migration.proto, in kvcq_client.pb.v1."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from kvcq_client.arguments import checked
from kvcq_client.pb.v1 import migration_pb2 as pb
from kvcq_client.transport import Blocking, blocking

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from google.protobuf.message import Message

    from kvcq_client.transport import Connection

R = TypeVar("R")


@checked()
class AsyncMigration:
    """Moves the server's store between file queues and RocksDB, step by step.

    What takes long is a job: the step returns its id at once, and `client.jobs` has the rest. A
    step that is not possible now raises NotPossibleError; its metadata may name the next one. No
    step is repeated once it was sent: after UnavailableError or DeadlineError ask for the status.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._stub = connection.migration

    async def plan(self, *, timeout_s: float | None = None) -> pb.MigrationPlan:
        """What starting would do. Changes nothing."""
        request = pb.PlanMigrationRequest()
        return await self._connection.call(self._stub.PlanMigration, request, timeout_s)

    async def status(self, *, timeout_s: float | None = None) -> pb.MigrationStatus:
        """Where the migration stands, and its jobs."""
        request = pb.GetMigrationStatusRequest()
        return await self._connection.call(self._stub.GetMigrationStatus, request, timeout_s)

    async def start(self, *, timeout_s: float | None = None) -> pb.MigrationStepResponse:
        """Write both sides."""
        return await self._step(self._stub.StartMigration, pb.StartMigrationRequest(), timeout_s)

    async def verify(
        self, key_every: int | None = None, *, timeout_s: float | None = None
    ) -> pb.MigrationStepResponse:
        """Compare the sides. `key_every`: of how many messages the keys of one are looked up."""
        request = pb.VerifyMigrationRequest(key_every=key_every)
        return await self._step(self._stub.VerifyMigration, request, timeout_s)

    async def differences(
        self, limit: int | None = None, *, skip: int = 0, timeout_s: float | None = None
    ) -> list[pb.Difference]:
        """What the last verification found; without a limit 1000 of them."""
        request = pb.ListDifferencesRequest(limit=limit, skip=skip)
        answer = await self._connection.call(self._stub.ListDifferences, request, timeout_s)
        return list(answer.differences)

    async def cutover(self, *, timeout_s: float | None = None) -> pb.MigrationStepResponse:
        """Read from RocksDB."""
        return await self._step(self._stub.Cutover, pb.CutoverRequest(), timeout_s)

    async def rollback(self, *, timeout_s: float | None = None) -> pb.MigrationStepResponse:
        """One step back."""
        return await self._step(self._stub.Rollback, pb.RollbackRequest(), timeout_s)

    async def finish(self, *, timeout_s: float | None = None) -> pb.MigrationStepResponse:
        """Remove the files."""
        return await self._step(self._stub.FinishMigration, pb.FinishRequest(), timeout_s)

    async def resume(self, *, timeout_s: float | None = None) -> pb.MigrationStepResponse:
        """Go on with what was interrupted."""
        return await self._step(self._stub.ResumeMigration, pb.ResumeRequest(), timeout_s)

    async def ingest(
        self, request: pb.IngestFilesRequest, *, timeout_s: float | None = None
    ) -> pb.IngestFilesResponse:
        """Take sorted files in, as history in RocksDB. Takes as long as copying them."""
        return await self._step(self._stub.IngestFiles, request, timeout_s)

    async def _step(
        self, method: Callable[..., Awaitable[R]], request: Message, timeout_s: float | None
    ) -> R:
        return await self._connection.call(method, request, timeout_s, may_repeat=False)


class Migration(Blocking[AsyncMigration]):
    __doc__ = AsyncMigration.__doc__

    plan = blocking(AsyncMigration.plan)
    status = blocking(AsyncMigration.status)
    start = blocking(AsyncMigration.start)
    verify = blocking(AsyncMigration.verify)
    differences = blocking(AsyncMigration.differences)
    cutover = blocking(AsyncMigration.cutover)
    rollback = blocking(AsyncMigration.rollback)
    finish = blocking(AsyncMigration.finish)
    resume = blocking(AsyncMigration.resume)
    ingest = blocking(AsyncMigration.ingest)
