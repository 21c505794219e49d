from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MigrationPhase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MIGRATION_PHASE_UNSPECIFIED: _ClassVar[MigrationPhase]
    MIGRATION_PHASE_FILES: _ClassVar[MigrationPhase]
    MIGRATION_PHASE_DOUBLE_WRITE: _ClassVar[MigrationPhase]
    MIGRATION_PHASE_VERIFIED: _ClassVar[MigrationPhase]
    MIGRATION_PHASE_ROCKSDB: _ClassVar[MigrationPhase]
    MIGRATION_PHASE_FINISHED: _ClassVar[MigrationPhase]
MIGRATION_PHASE_UNSPECIFIED: MigrationPhase
MIGRATION_PHASE_FILES: MigrationPhase
MIGRATION_PHASE_DOUBLE_WRITE: MigrationPhase
MIGRATION_PHASE_VERIFIED: MigrationPhase
MIGRATION_PHASE_ROCKSDB: MigrationPhase
MIGRATION_PHASE_FINISHED: MigrationPhase

class FileLayout(_message.Message):
    __slots__ = ("units_per_file", "index_slots", "index_entries")
    UNITS_PER_FILE_FIELD_NUMBER: _ClassVar[int]
    INDEX_SLOTS_FIELD_NUMBER: _ClassVar[int]
    INDEX_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    units_per_file: int
    index_slots: int
    index_entries: int
    def __init__(self, units_per_file: _Optional[int] = ..., index_slots: _Optional[int] = ..., index_entries: _Optional[int] = ...) -> None: ...

class MigrationSide(_message.Message):
    __slots__ = ("name", "dispatched_offset", "behind_bytes", "joined", "failure")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DISPATCHED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BEHIND_BYTES_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    name: str
    dispatched_offset: int
    behind_bytes: int
    joined: bool
    failure: str
    def __init__(self, name: _Optional[str] = ..., dispatched_offset: _Optional[int] = ..., behind_bytes: _Optional[int] = ..., joined: _Optional[bool] = ..., failure: _Optional[str] = ...) -> None: ...

class VerifyResult(_message.Message):
    __slots__ = ("cut_offset", "compared_units", "difference_count", "finished_ms")
    CUT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    COMPARED_UNITS_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCE_COUNT_FIELD_NUMBER: _ClassVar[int]
    FINISHED_MS_FIELD_NUMBER: _ClassVar[int]
    cut_offset: int
    compared_units: int
    difference_count: int
    finished_ms: int
    def __init__(self, cut_offset: _Optional[int] = ..., compared_units: _Optional[int] = ..., difference_count: _Optional[int] = ..., finished_ms: _Optional[int] = ...) -> None: ...

class Difference(_message.Message):
    __slots__ = ("topic", "queue_id", "queue_offset", "field", "side", "in_log", "in_side")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    SIDE_FIELD_NUMBER: _ClassVar[int]
    IN_LOG_FIELD_NUMBER: _ClassVar[int]
    IN_SIDE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    queue_offset: int
    field: str
    side: str
    in_log: str
    in_side: str
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., queue_offset: _Optional[int] = ..., field: _Optional[str] = ..., side: _Optional[str] = ..., in_log: _Optional[str] = ..., in_side: _Optional[str] = ...) -> None: ...

class MigrationEvent(_message.Message):
    __slots__ = ("time_ms", "event")
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    time_ms: int
    event: str
    def __init__(self, time_ms: _Optional[int] = ..., event: _Optional[str] = ...) -> None: ...

class MigrationStatus(_message.Message):
    __slots__ = ("phase", "pending_phase", "stopped", "verified", "history", "log_start_offset", "log_end_offset", "dispatched_offset", "sides", "next_command", "layout", "verify_broken_off", "ingest_directory", "hint", "blamed_sides", "running_job_id")
    PHASE_FIELD_NUMBER: _ClassVar[int]
    PENDING_PHASE_FIELD_NUMBER: _ClassVar[int]
    STOPPED_FIELD_NUMBER: _ClassVar[int]
    VERIFIED_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DISPATCHED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SIDES_FIELD_NUMBER: _ClassVar[int]
    NEXT_COMMAND_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    VERIFY_BROKEN_OFF_FIELD_NUMBER: _ClassVar[int]
    INGEST_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    BLAMED_SIDES_FIELD_NUMBER: _ClassVar[int]
    RUNNING_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    phase: MigrationPhase
    pending_phase: MigrationPhase
    stopped: str
    verified: VerifyResult
    history: _containers.RepeatedCompositeFieldContainer[MigrationEvent]
    log_start_offset: int
    log_end_offset: int
    dispatched_offset: int
    sides: _containers.RepeatedCompositeFieldContainer[MigrationSide]
    next_command: str
    layout: FileLayout
    verify_broken_off: str
    ingest_directory: str
    hint: str
    blamed_sides: _containers.RepeatedScalarFieldContainer[str]
    running_job_id: str
    def __init__(self, phase: _Optional[_Union[MigrationPhase, str]] = ..., pending_phase: _Optional[_Union[MigrationPhase, str]] = ..., stopped: _Optional[str] = ..., verified: _Optional[_Union[VerifyResult, _Mapping]] = ..., history: _Optional[_Iterable[_Union[MigrationEvent, _Mapping]]] = ..., log_start_offset: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., dispatched_offset: _Optional[int] = ..., sides: _Optional[_Iterable[_Union[MigrationSide, _Mapping]]] = ..., next_command: _Optional[str] = ..., layout: _Optional[_Union[FileLayout, _Mapping]] = ..., verify_broken_off: _Optional[str] = ..., ingest_directory: _Optional[str] = ..., hint: _Optional[str] = ..., blamed_sides: _Optional[_Iterable[str]] = ..., running_job_id: _Optional[str] = ...) -> None: ...

class PlanMigrationRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class MigrationFinding(_message.Message):
    __slots__ = ("path", "position", "fault", "detail", "remedy", "count")
    PATH_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    REMEDY_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    path: str
    position: int
    fault: str
    detail: str
    remedy: str
    count: int
    def __init__(self, path: _Optional[str] = ..., position: _Optional[int] = ..., fault: _Optional[str] = ..., detail: _Optional[str] = ..., remedy: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class MigrationPlan(_message.Message):
    __slots__ = ("kind", "phase", "segments", "log_bytes", "bytes_to_replay", "messages", "messages_are_estimated", "topics", "queues", "bytes_per_unit", "disk_needed_bytes", "disk_free_bytes", "units_per_s", "expected_s", "findings", "blocking", "next_command", "config", "queues_in_rocksdb", "dead", "hint", "held_back")
    KIND_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    LOG_BYTES_FIELD_NUMBER: _ClassVar[int]
    BYTES_TO_REPLAY_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_ARE_ESTIMATED_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_UNIT_FIELD_NUMBER: _ClassVar[int]
    DISK_NEEDED_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    UNITS_PER_S_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_S_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    BLOCKING_FIELD_NUMBER: _ClassVar[int]
    NEXT_COMMAND_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    QUEUES_IN_ROCKSDB_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    HELD_BACK_FIELD_NUMBER: _ClassVar[int]
    kind: str
    phase: str
    segments: int
    log_bytes: int
    bytes_to_replay: int
    messages: int
    messages_are_estimated: bool
    topics: int
    queues: int
    bytes_per_unit: float
    disk_needed_bytes: int
    disk_free_bytes: int
    units_per_s: float
    expected_s: float
    findings: _containers.RepeatedCompositeFieldContainer[MigrationFinding]
    blocking: _containers.RepeatedScalarFieldContainer[str]
    next_command: str
    config: _containers.RepeatedCompositeFieldContainer[MigrationConfigTable]
    queues_in_rocksdb: int
    dead: _containers.RepeatedCompositeFieldContainer[DeadRecords]
    hint: str
    held_back: _containers.RepeatedCompositeFieldContainer[HeldBack]
    def __init__(self, kind: _Optional[str] = ..., phase: _Optional[str] = ..., segments: _Optional[int] = ..., log_bytes: _Optional[int] = ..., bytes_to_replay: _Optional[int] = ..., messages: _Optional[int] = ..., messages_are_estimated: _Optional[bool] = ..., topics: _Optional[int] = ..., queues: _Optional[int] = ..., bytes_per_unit: _Optional[float] = ..., disk_needed_bytes: _Optional[int] = ..., disk_free_bytes: _Optional[int] = ..., units_per_s: _Optional[float] = ..., expected_s: _Optional[float] = ..., findings: _Optional[_Iterable[_Union[MigrationFinding, _Mapping]]] = ..., blocking: _Optional[_Iterable[str]] = ..., next_command: _Optional[str] = ..., config: _Optional[_Iterable[_Union[MigrationConfigTable, _Mapping]]] = ..., queues_in_rocksdb: _Optional[int] = ..., dead: _Optional[_Iterable[_Union[DeadRecords, _Mapping]]] = ..., hint: _Optional[str] = ..., held_back: _Optional[_Iterable[_Union[HeldBack, _Mapping]]] = ...) -> None: ...

class HeldBack(_message.Message):
    __slots__ = ("kind", "topic", "records", "waiting", "outcome")
    KIND_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    kind: str
    topic: str
    records: int
    waiting: int
    outcome: str
    def __init__(self, kind: _Optional[str] = ..., topic: _Optional[str] = ..., records: _Optional[int] = ..., waiting: _Optional[int] = ..., outcome: _Optional[str] = ...) -> None: ...

class MigrationConfigTable(_message.Message):
    __slots__ = ("path", "form", "holds", "rows", "offsets", "detail")
    PATH_FIELD_NUMBER: _ClassVar[int]
    FORM_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    path: str
    form: str
    holds: str
    rows: int
    offsets: int
    detail: str
    def __init__(self, path: _Optional[str] = ..., form: _Optional[str] = ..., holds: _Optional[str] = ..., rows: _Optional[int] = ..., offsets: _Optional[int] = ..., detail: _Optional[str] = ...) -> None: ...

class DeadRecords(_message.Message):
    __slots__ = ("name", "records", "generations", "live_from")
    NAME_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    GENERATIONS_FIELD_NUMBER: _ClassVar[int]
    LIVE_FROM_FIELD_NUMBER: _ClassVar[int]
    name: str
    records: int
    generations: int
    live_from: int
    def __init__(self, name: _Optional[str] = ..., records: _Optional[int] = ..., generations: _Optional[int] = ..., live_from: _Optional[int] = ...) -> None: ...

class StartMigrationRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class VerifyMigrationRequest(_message.Message):
    __slots__ = ("key_every",)
    KEY_EVERY_FIELD_NUMBER: _ClassVar[int]
    key_every: int
    def __init__(self, key_every: _Optional[int] = ...) -> None: ...

class CutoverRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RollbackRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FinishRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResumeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetMigrationStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class MigrationStepResponse(_message.Message):
    __slots__ = ("job_id", "status")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    status: MigrationStatus
    def __init__(self, job_id: _Optional[str] = ..., status: _Optional[_Union[MigrationStatus, _Mapping]] = ...) -> None: ...

class ListDifferencesRequest(_message.Message):
    __slots__ = ("limit", "skip")
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    SKIP_FIELD_NUMBER: _ClassVar[int]
    limit: int
    skip: int
    def __init__(self, limit: _Optional[int] = ..., skip: _Optional[int] = ...) -> None: ...

class ListDifferencesResponse(_message.Message):
    __slots__ = ("differences",)
    DIFFERENCES_FIELD_NUMBER: _ClassVar[int]
    differences: _containers.RepeatedCompositeFieldContainer[Difference]
    def __init__(self, differences: _Optional[_Iterable[_Union[Difference, _Mapping]]] = ...) -> None: ...

class IngestFilesRequest(_message.Message):
    __slots__ = ("files", "start_offset", "dispatched_offset")
    class File(_message.Message):
        __slots__ = ("path", "family")
        PATH_FIELD_NUMBER: _ClassVar[int]
        FAMILY_FIELD_NUMBER: _ClassVar[int]
        path: str
        family: str
        def __init__(self, path: _Optional[str] = ..., family: _Optional[str] = ...) -> None: ...
    FILES_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DISPATCHED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    files: _containers.RepeatedCompositeFieldContainer[IngestFilesRequest.File]
    start_offset: int
    dispatched_offset: int
    def __init__(self, files: _Optional[_Iterable[_Union[IngestFilesRequest.File, _Mapping]]] = ..., start_offset: _Optional[int] = ..., dispatched_offset: _Optional[int] = ...) -> None: ...

class IngestFilesResponse(_message.Message):
    __slots__ = ("ingested", "dispatched_offset")
    INGESTED_FIELD_NUMBER: _ClassVar[int]
    DISPATCHED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ingested: bool
    dispatched_offset: int
    def __init__(self, ingested: _Optional[bool] = ..., dispatched_offset: _Optional[int] = ...) -> None: ...
