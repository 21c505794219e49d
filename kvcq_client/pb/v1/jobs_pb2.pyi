from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JobStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_STATUS_UNSPECIFIED: _ClassVar[JobStatus]
    JOB_STATUS_RUNNING: _ClassVar[JobStatus]
    JOB_STATUS_DONE: _ClassVar[JobStatus]
    JOB_STATUS_CANCELLED: _ClassVar[JobStatus]
    JOB_STATUS_FAILED: _ClassVar[JobStatus]
JOB_STATUS_UNSPECIFIED: JobStatus
JOB_STATUS_RUNNING: JobStatus
JOB_STATUS_DONE: JobStatus
JOB_STATUS_CANCELLED: JobStatus
JOB_STATUS_FAILED: JobStatus

class CompactJob(_message.Message):
    __slots__ = ("family", "topic")
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    family: str
    topic: str
    def __init__(self, family: _Optional[str] = ..., topic: _Optional[str] = ...) -> None: ...

class ScrubJob(_message.Message):
    __slots__ = ("bytes_per_s", "log_only")
    BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    LOG_ONLY_FIELD_NUMBER: _ClassVar[int]
    bytes_per_s: int
    log_only: bool
    def __init__(self, bytes_per_s: _Optional[int] = ..., log_only: _Optional[bool] = ...) -> None: ...

class RebuildJob(_message.Message):
    __slots__ = ("topic", "queue_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ...) -> None: ...

class ExpireJob(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BackupJob(_message.Message):
    __slots__ = ("target", "bytes_per_s", "link")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    target: str
    bytes_per_s: int
    link: bool
    def __init__(self, target: _Optional[str] = ..., bytes_per_s: _Optional[int] = ..., link: _Optional[bool] = ...) -> None: ...

class KeepLatestJob(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class StartJobRequest(_message.Message):
    __slots__ = ("compact", "scrub", "rebuild", "expire", "backup", "keep_latest")
    COMPACT_FIELD_NUMBER: _ClassVar[int]
    SCRUB_FIELD_NUMBER: _ClassVar[int]
    REBUILD_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_FIELD_NUMBER: _ClassVar[int]
    BACKUP_FIELD_NUMBER: _ClassVar[int]
    KEEP_LATEST_FIELD_NUMBER: _ClassVar[int]
    compact: CompactJob
    scrub: ScrubJob
    rebuild: RebuildJob
    expire: ExpireJob
    backup: BackupJob
    keep_latest: KeepLatestJob
    def __init__(self, compact: _Optional[_Union[CompactJob, _Mapping]] = ..., scrub: _Optional[_Union[ScrubJob, _Mapping]] = ..., rebuild: _Optional[_Union[RebuildJob, _Mapping]] = ..., expire: _Optional[_Union[ExpireJob, _Mapping]] = ..., backup: _Optional[_Union[BackupJob, _Mapping]] = ..., keep_latest: _Optional[_Union[KeepLatestJob, _Mapping]] = ...) -> None: ...

class JobFinding(_message.Message):
    __slots__ = ("fault", "place", "topic", "queue_id", "queue_offset", "physical_offset", "detail", "remedy", "count")
    FAULT_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PHYSICAL_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    REMEDY_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    fault: str
    place: str
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    detail: str
    remedy: str
    count: int
    def __init__(self, fault: _Optional[str] = ..., place: _Optional[str] = ..., topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., queue_offset: _Optional[int] = ..., physical_offset: _Optional[int] = ..., detail: _Optional[str] = ..., remedy: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class Job(_message.Message):
    __slots__ = ("job_id", "kind", "arguments", "status", "step", "done", "total", "unit", "percent", "elapsed_s", "remaining_s", "started_ms", "ended_ms", "scheduled", "summary", "numbers", "findings", "error")
    class ArgumentsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class NumbersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    PERCENT_FIELD_NUMBER: _ClassVar[int]
    ELAPSED_S_FIELD_NUMBER: _ClassVar[int]
    REMAINING_S_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_MS_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    kind: str
    arguments: _containers.ScalarMap[str, str]
    status: JobStatus
    step: str
    done: int
    total: int
    unit: str
    percent: float
    elapsed_s: float
    remaining_s: float
    started_ms: int
    ended_ms: int
    scheduled: bool
    summary: str
    numbers: _containers.ScalarMap[str, int]
    findings: _containers.RepeatedCompositeFieldContainer[JobFinding]
    error: str
    def __init__(self, job_id: _Optional[str] = ..., kind: _Optional[str] = ..., arguments: _Optional[_Mapping[str, str]] = ..., status: _Optional[_Union[JobStatus, str]] = ..., step: _Optional[str] = ..., done: _Optional[int] = ..., total: _Optional[int] = ..., unit: _Optional[str] = ..., percent: _Optional[float] = ..., elapsed_s: _Optional[float] = ..., remaining_s: _Optional[float] = ..., started_ms: _Optional[int] = ..., ended_ms: _Optional[int] = ..., scheduled: _Optional[bool] = ..., summary: _Optional[str] = ..., numbers: _Optional[_Mapping[str, int]] = ..., findings: _Optional[_Iterable[_Union[JobFinding, _Mapping]]] = ..., error: _Optional[str] = ...) -> None: ...

class GetJobRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class ListJobsRequest(_message.Message):
    __slots__ = ("kind",)
    KIND_FIELD_NUMBER: _ClassVar[int]
    kind: str
    def __init__(self, kind: _Optional[str] = ...) -> None: ...

class ListJobsResponse(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    def __init__(self, jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ...) -> None: ...

class CancelJobRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class WatchJobRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...
