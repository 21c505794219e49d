"""The steps of a migration between RocketMQ's queue files and RocksDB."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from kvcq_client.arguments import checked, of_kind
from kvcq_client.pb.v1 import migration_pb2 as pb
from kvcq_client.transport import Blocking, blocking
from kvcq_client.wire import from_wire

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from google.protobuf.message import Message

    from kvcq_client.transport import Connection

R = TypeVar("R")


class MigrationPhase(Enum):
    """Which side is written, and which is read."""

    FILES = "files"  # files are written and read
    DOUBLE_WRITE = "double_write"  # both are written; files are read
    VERIFIED = "verified"  # like DOUBLE_WRITE, and a verification found no difference
    ROCKSDB = "rocksdb"  # both are written; RocksDB is read
    FINISHED = "finished"  # RocksDB is written and read; the files are gone


@dataclass(frozen=True, slots=True)
class FileLayout:
    """Sizes of RocketMQ's queue and index files."""

    units_per_file: int
    index_slots: int
    index_entries: int


@dataclass(frozen=True, slots=True)
class MigrationSide:
    """One of the two copies of the queues."""

    name: str  # "files" or "rocksdb"
    dispatched_offset: int  # physical offset up to which it is complete
    behind_bytes: int  # from there to the end of the log
    joined: bool  # whether new messages are dispatched to it
    failure: str | None  # why they no longer are


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """What the last verification found."""

    cut_offset: int  # everything below this physical offset was compared
    compared_units: int
    difference_count: int
    finished_ms: int  # ms since 1970


@dataclass(frozen=True, slots=True)
class Difference:
    """One fact on which the log and a side disagree."""

    topic: str
    queue_id: int
    queue_offset: int
    field: str
    side: str  # "files" or "rocksdb"
    in_log: str
    in_side: str


@dataclass(frozen=True, slots=True)
class MigrationEvent:
    """A step that was made."""

    time_ms: int  # ms since 1970
    event: str


@dataclass(frozen=True, slots=True)
class MigrationStatus:
    """The state of a migration. Offsets are physical: byte positions in the commit log."""

    phase: MigrationPhase | None  # None: the store was made in RocksDB, and has no migration
    pending_phase: MigrationPhase | None  # during a change of phase
    stopped: str | None  # why a side was detached
    verified: VerifyResult | None  # None before the first verification
    history: tuple[MigrationEvent, ...]
    log_start_offset: int
    log_end_offset: int
    dispatched_offset: int
    sides: tuple[MigrationSide, ...]
    next_command: str | None  # the next step, for a shell
    layout: FileLayout | None
    verify_broken_off: str | None  # why the last verification did not end
    ingest_directory: str | None  # on the server's machine: where `ingest` takes files from
    hint: str | None  # a sentence beside `next_command`, or instead of it
    blamed_sides: tuple[str, ...]  # sides in use that the last verification found wrong
    running_job_id: str | None  # a backfill or verification, for `client.jobs`


@dataclass(frozen=True, slots=True)
class MigrationFinding:
    """A fault in the files of a store that is to be migrated."""

    path: str
    position: int  # in bytes
    fault: str
    detail: str
    remedy: str
    count: int  # units or entries concerned


@dataclass(frozen=True, slots=True)
class MigrationConfigTable:
    """A file or database in which RocketMQ keeps topics, groups or committed offsets."""

    path: str  # below the store's directory
    form: str
    holds: str  # "topics", "groups" or "offsets"
    rows: int
    offsets: int  # in all rows, of a table of offsets
    detail: str  # what `start` would do with it


@dataclass(frozen=True, slots=True)
class DeadRecords:
    """Records of a topic or light queue that RocketMQ deleted. They are not taken over."""

    name: str
    records: int
    generations: int  # at least this many are in the log, the living one included
    live_from: int | None  # physical offset from which its records live; None: none does


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Messages of one kind that RocketMQ keeps in a topic of its own."""

    kind: str
    topic: str
    records: int  # in the log, delivered ones included
    waiting: int  # not delivered yet
    outcome: str  # what `start` would do with them


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """What starting a migration would read, write and need."""

    kind: str  # "rocketmq" or "ours"
    phase: str | None  # of a kvcq store; None for RocketMQ's, and without a migration
    segments: int
    log_bytes: int
    bytes_to_replay: int
    messages: int
    messages_are_estimated: bool
    topics: int
    queues: int
    bytes_per_unit: float | None  # measured on a sample; None with too few messages
    disk_needed_bytes: int
    disk_free_bytes: int
    units_per_s: float | None  # likewise
    expected_s: float | None  # likewise
    findings: tuple[MigrationFinding, ...]
    blocking: tuple[str, ...]  # reasons for which `start` would fail
    next_command: str | None
    config: tuple[MigrationConfigTable, ...]
    queues_in_rocksdb: int  # queues that RocketMQ keeps in its RocksDB: made from the log
    dead: tuple[DeadRecords, ...]
    hint: str | None
    held_back: tuple[HeldBack, ...]


@dataclass(frozen=True, slots=True)
class MigrationStep:
    """The result of a step."""

    job_id: str | None  # the job that continues the step; None if it is done
    status: MigrationStatus


@dataclass(frozen=True, slots=True)
class SortedFile:
    """A file of rows for `ingest`."""

    path: str  # below `MigrationStatus.ingest_directory`, with / between directories
    family: str  # the column family: "default", "index" or "offset"


@dataclass(frozen=True, slots=True)
class Ingested:
    """The result of `ingest`."""

    ingested: bool  # False when RocksDB had all of it already
    dispatched_offset: int  # physical offset up to which RocksDB is complete


@checked()
class AsyncMigration:
    """Moves the server's store between file queues and RocksDB, step by step.

    Long steps are jobs: the call returns the job's id at once, and `client.jobs` has the rest. A
    step that is not possible now raises NotPossibleError; `metadata["nextCommand"]` may name the
    one that is. A step is sent once: after UnavailableError or DeadlineError ask for the status.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._stub = connection.migration

    async def plan(self, *, timeout_s: float | None = None) -> MigrationPlan:
        """What starting would do. Changes nothing."""
        request = pb.PlanMigrationRequest()
        answer = await self._connection.call(self._stub.PlanMigration, request, timeout_s)
        return from_wire(MigrationPlan, answer)

    async def status(self, *, timeout_s: float | None = None) -> MigrationStatus:
        """The state of the migration, and its running job."""
        request = pb.GetMigrationStatusRequest()
        answer = await self._connection.call(self._stub.GetMigrationStatus, request, timeout_s)
        return from_wire(MigrationStatus, answer)

    async def start(self, *, timeout_s: float | None = None) -> MigrationStep:
        """Write both sides from now on, and fill RocksDB with what the log already has."""
        return await self._step(self._stub.StartMigration, pb.StartMigrationRequest(), timeout_s)

    async def verify(
        self, key_every: int | None = None, *, timeout_s: float | None = None
    ) -> MigrationStep:
        """Compare both sides with the log.

        The keys of one message in `key_every` are looked up; None for the server's default.
        """
        request = pb.VerifyMigrationRequest(key_every=key_every)
        return await self._step(self._stub.VerifyMigration, request, timeout_s)

    async def differences(
        self, limit: int | None = None, *, skip: int = 0, timeout_s: float | None = None
    ) -> list[Difference]:
        """Differences that the last verification found: at most `limit` (None: 1,000), after
        skipping the first `skip`."""
        request = pb.ListDifferencesRequest(limit=limit, skip=skip)
        answer = await self._connection.call(self._stub.ListDifferences, request, timeout_s)
        return [from_wire(Difference, one) for one in answer.differences]

    async def cutover(self, *, timeout_s: float | None = None) -> MigrationStep:
        """Read from RocksDB from now on. Files are still written, so `rollback` stays possible."""
        return await self._step(self._stub.Cutover, pb.CutoverRequest(), timeout_s)

    async def rollback(self, *, timeout_s: float | None = None) -> MigrationStep:
        """Go one phase back."""
        return await self._step(self._stub.Rollback, pb.RollbackRequest(), timeout_s)

    async def finish(self, *, timeout_s: float | None = None) -> MigrationStep:
        """Remove the queue and index files."""
        return await self._step(self._stub.FinishMigration, pb.FinishRequest(), timeout_s)

    async def resume(self, *, timeout_s: float | None = None) -> MigrationStep:
        """Continue after a stop, from where the side was that stopped."""
        return await self._step(self._stub.ResumeMigration, pb.ResumeRequest(), timeout_s)

    async def ingest(
        self,
        files: Sequence[SortedFile],
        *,
        start_offset: int,
        dispatched_offset: int,
        timeout_s: float | None = None,
    ) -> Ingested:
        """Ingest sorted files into RocksDB as history. Takes as long as copying them.

        At most 10,000 files, which hold everything derived from the log from `start_offset` to
        `dispatched_offset`.
        """
        for one in files:
            of_kind("files", one, SortedFile)
        request = pb.IngestFilesRequest(
            files=[pb.IngestFilesRequest.File(path=one.path, family=one.family) for one in files],
            start_offset=start_offset,
            dispatched_offset=dispatched_offset,
        )
        return from_wire(Ingested, await self._once(self._stub.IngestFiles, request, timeout_s))

    async def _step(
        self,
        method: Callable[..., Awaitable[pb.MigrationStepResponse]],
        request: Message,
        timeout_s: float | None,
    ) -> MigrationStep:
        return from_wire(MigrationStep, await self._once(method, request, timeout_s))

    async def _once(
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
