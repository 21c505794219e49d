"""The migration over gRPC. Steps touch the disk: workers do them; long ones go on as jobs."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import migration_pb2 as pb
from kvcq_client.pb.v1 import migration_pb2_grpc
from migration.steps import VerifyOptions
from server.wire import migration_convert as convert
from server.wire.convert import bounded
from server.wire.request_fields import MAX_FILES
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

    from migration.jobs import Job
    from migration.migrator import Migrator
    from server.metrics import CallMetrics
    from server.stage import Stage
    from server.wire.call_errors import Context

_DEFAULT_DIFFERENCES = 1000
_MAX_DIFFERENCES = 10_000
#: Characters of a file's name below the ingest directory, directories included.
_LONGEST_PATH = 1024
_FAMILIES = frozenset({"default", "index", "offset"})


class MigrationService(migration_pb2_grpc.MigrationServiceServicer):
    """Steps, jobs and their progress, of the one store that is served."""

    def __init__(self, stage: Stage, metrics: CallMetrics) -> None:
        self._stage = stage
        self.metrics = metrics

    async def _step(self, step: Callable[[Migrator], Job | None]) -> pb.MigrationStepResponse:
        parts = self._stage.parts
        migrator = parts.migrator

        def take() -> pb.MigrationStepResponse:
            job = step(migrator)
            return pb.MigrationStepResponse(
                job_id="" if job is None else job.job_id,
                status=convert.status_out(migrator.status()),
            )

        return await parts.steps.run(take)

    async def PlanMigration(
        self, request: pb.PlanMigrationRequest, context: Context
    ) -> pb.MigrationPlan:
        parts = self._stage.parts
        plan = await parts.steps.run(parts.migrator.plan)
        return convert.plan_out(plan)

    async def StartMigration(
        self, request: pb.StartMigrationRequest, context: Context
    ) -> pb.MigrationStepResponse:
        routing = convert.routing_in(request.routing) if request.HasField("routing") else None
        return await self._step(lambda migrator: migrator.start(routing))

    async def GetMigrationStatus(
        self, request: pb.GetMigrationStatusRequest, context: Context
    ) -> pb.MigrationStatus:
        parts = self._stage.parts
        status = convert.status_out(await parts.workers.run(parts.migrator.status))
        status.ingest_directory = str(parts.config.ingest_directory)
        return status

    async def VerifyMigration(
        self, request: pb.VerifyMigrationRequest, context: Context
    ) -> pb.MigrationStepResponse:
        every = bounded("key_every", request.key_every, VerifyOptions().key_every, 1 << 30)
        return await self._step(lambda migrator: migrator.verify(VerifyOptions(key_every=every)))

    async def ListDifferences(
        self, request: pb.ListDifferencesRequest, context: Context
    ) -> pb.ListDifferencesResponse:
        limit = bounded("limit", request.limit, _DEFAULT_DIFFERENCES, _MAX_DIFFERENCES)
        if request.skip < 0:
            raise InvalidArgumentError("skip", f"{request.skip} is below 0")
        found = self._stage.parts.migrator.differences
        return convert.differences_out(found[request.skip : request.skip + limit])

    async def Cutover(
        self, request: pb.CutoverRequest, context: Context
    ) -> pb.MigrationStepResponse:
        return await self._step(_without_job(lambda migrator: migrator.cutover()))

    async def Rollback(
        self, request: pb.RollbackRequest, context: Context
    ) -> pb.MigrationStepResponse:
        return await self._step(lambda migrator: migrator.rollback())

    async def FinishMigration(
        self, request: pb.FinishRequest, context: Context
    ) -> pb.MigrationStepResponse:
        return await self._step(_without_job(lambda migrator: migrator.finish()))

    async def GetRouting(self, request: pb.GetRoutingRequest, context: Context) -> pb.RoutingPolicy:
        return convert.routing_out(self._stage.parts.migrator.routing())

    async def SetRouting(
        self, request: pb.SetRoutingRequest, context: Context
    ) -> pb.MigrationStepResponse:
        routing = convert.routing_in(request.routing)
        return await self._step(lambda migrator: migrator.set_routing(routing))

    async def CancelMigration(
        self, request: pb.CancelRequest, context: Context
    ) -> pb.MigrationStepResponse:
        return await self._step(_without_job(lambda migrator: migrator.cancel(request.job_id)))

    async def ResumeMigration(
        self, request: pb.ResumeRequest, context: Context
    ) -> pb.MigrationStepResponse:
        return await self._step(lambda migrator: migrator.resume())

    async def IngestFiles(
        self, request: pb.IngestFilesRequest, context: Context
    ) -> pb.IngestFilesResponse:
        parts = self._stage.parts
        if len(request.files) > MAX_FILES:
            raise InvalidArgumentError(
                "files", f"{len(request.files)} files, more than {MAX_FILES}"
            )
        files = await parts.workers.run(_files_of, request, parts.config.ingest_directory)
        ingested = await parts.steps.run(
            parts.migrator.ingest,
            files,
            request.dispatched_offset,
            start_offset=request.start_offset,
            deletions=request.deletions if request.HasField("deletions") else None,
        )
        watermark = parts.migrator.rocksdb_offset()
        return pb.IngestFilesResponse(ingested=ingested, dispatched_offset=watermark)


def _files_of(request: pb.IngestFilesRequest, directory: Path) -> dict[str, list[Path]]:
    """The files by family. Raises InvalidArgumentError for one that is not below the directory."""
    files: dict[str, list[Path]] = {}
    for index, file in enumerate(request.files):
        if file.family not in _FAMILIES:
            known = ", ".join(sorted(_FAMILIES))
            raise InvalidArgumentError(
                f"files[{index}].family", f"{file.family!r} is none of {known}"
            )
        files.setdefault(file.family, []).append(_file_below(directory, file.path, index))
    return files


def _file_below(directory: Path, name: str, index: int) -> Path:
    field = f"files[{index}].path"
    if len(name) > _LONGEST_PATH or not name.isprintable():
        raise InvalidArgumentError(
            field, f"is longer than {_LONGEST_PATH} characters, or not printable"
        )
    parts = PurePosixPath(name).parts
    if not parts or parts[0] == "/" or ".." in parts:
        raise InvalidArgumentError(field, f"{name!r} is no name below the ingest directory")
    path = directory / name
    try:
        path = path.resolve()
        found = path.is_relative_to(directory.resolve()) and path.is_file()
    except (OSError, RuntimeError):  # a component that is too long; a circle of links
        found = False
    if not found:
        raise InvalidArgumentError(field, f"{name!r} is no file below {directory}")
    return path


def _without_job(step: Callable[[Migrator], object]) -> Callable[[Migrator], None]:
    """A step that is done when it returns."""

    def take(migrator: Migrator) -> None:
        step(migrator)

    return take
