"""The migration over gRPC. Steps access the disk, so workers run them; long ones continue as
jobs."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, ParamSpec

from kvcq_client.pb.v1 import migration_pb2 as pb
from kvcq_client.pb.v1 import migration_pb2_grpc
from migration.jobs import Job
from migration.state import SideName
from migration.steps import KEY_EVERY
from server.edge import MAX_FILES
from server.wire import (
    bounded,
    differences_out,
    not_more,
    not_negative,
    plan_out,
    status_out,
)
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

    from migration.migrator import Migrator
    from server.edge import Context
    from server.workers import Pools

P = ParamSpec("P")
Step = pb.MigrationStepResponse

_DEFAULT_DIFFERENCES = 1000
_MAX_DIFFERENCES = 10_000
#: Characters of a file's name below the ingest directory, directories included.
_LONGEST_PATH = 1024
_FAMILIES = frozenset({"default", "index", "offset"})


class MigrationService(migration_pb2_grpc.MigrationServiceServicer):
    """Steps, jobs and progress of the served store's migration."""

    def __init__(self, migrator: Migrator, pools: Pools, ingest_directory: Path) -> None:
        """`ingest_directory`: the only directory from which IngestFiles accepts files."""
        self._migrator = migrator
        self._pools = pools
        self._ingest_directory = ingest_directory

    async def _step(self, step: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Step:
        def take() -> Step:
            done = step(*args, **kwargs)
            return Step(
                job_id=done.job_id if isinstance(done, Job) else "",  # otherwise it is done
                status=status_out(self._migrator.status()),
            )

        return await self._pools.steps.run(take)

    async def PlanMigration(
        self, request: pb.PlanMigrationRequest, context: Context
    ) -> pb.MigrationPlan:
        return plan_out(await self._pools.steps.run(self._migrator.plan))

    async def StartMigration(self, request: pb.StartMigrationRequest, context: Context) -> Step:
        return await self._step(self._migrator.live_for("start").start)

    async def GetMigrationStatus(
        self, request: pb.GetMigrationStatusRequest, context: Context
    ) -> pb.MigrationStatus:
        status = status_out(await self._pools.lookups.run(self._migrator.status))
        status.ingest_directory = str(self._ingest_directory)
        return status

    async def VerifyMigration(self, request: pb.VerifyMigrationRequest, context: Context) -> Step:
        every = bounded("key_every", request.key_every, KEY_EVERY, 1 << 30)
        return await self._step(self._migrator.live_for("verify").verify, every)

    async def ListDifferences(self, request: pb.ListDifferencesRequest, context: Context) -> bytes:
        limit = bounded("limit", request.limit, _DEFAULT_DIFFERENCES, _MAX_DIFFERENCES)
        skip = not_negative("skip", request.skip)
        found = self._migrator.live.differences[skip : skip + limit]
        return await self._pools.scans.encoded(lambda: differences_out(found))

    async def Cutover(self, request: pb.CutoverRequest, context: Context) -> Step:
        return await self._step(self._migrator.live_for("cutover").cutover)

    async def Rollback(self, request: pb.RollbackRequest, context: Context) -> Step:
        return await self._step(self._migrator.live_for("rollback").rollback)

    async def FinishMigration(self, request: pb.FinishRequest, context: Context) -> Step:
        return await self._step(self._migrator.live_for("finish").finish)

    async def ResumeMigration(self, request: pb.ResumeRequest, context: Context) -> Step:
        return await self._step(self._migrator.live_for("resume").resume)

    async def IngestFiles(
        self, request: pb.IngestFilesRequest, context: Context
    ) -> pb.IngestFilesResponse:
        not_more("files", request.files, MAX_FILES, "files")
        files = await self._pools.lookups.run(_files_of, request, self._ingest_directory)
        live = self._migrator.live_for("ingest")
        ingested = await self._pools.steps.run(
            live.ingest,
            files,
            request.dispatched_offset,
            start_offset=request.start_offset,
        )
        watermark = live.double.watermark(SideName.ROCKSDB) or 0
        return pb.IngestFilesResponse(ingested=ingested, dispatched_offset=watermark)


def _files_of(request: pb.IngestFilesRequest, directory: Path) -> dict[str, list[Path]]:
    """The files by family. Raises InvalidArgumentError for a file outside the directory."""
    files: dict[str, list[Path]] = {}
    for index, file in enumerate(request.files):
        if file.family not in _FAMILIES:
            known = ", ".join(sorted(_FAMILIES))
            raise InvalidArgumentError(
                f"files[{index}].family", f"{file.family!r} is not one of {known}"
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
        raise InvalidArgumentError(
            field, f"{name!r} is not a relative path below the ingest directory"
        )
    path = directory / name
    try:
        path = path.resolve()
        found = path.is_relative_to(directory.resolve()) and path.is_file()
    except (OSError, RuntimeError):  # a component that is too long; before 3.13, a circle of links
        found = False
    if not found:
        raise InvalidArgumentError(field, f"{name!r} is not a file below {directory}")
    return path
