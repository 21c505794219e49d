"""The Python client of kvcq: `Client` for blocking code, `AsyncClient` for event loops.

>>> from kvcq_client import Client, Message, Start
>>> with Client("127.0.0.1:8081") as client:
...     with client.producer() as producer:
...         sending = producer.send("orders", b"hello", ordering_key="customer-7")
...     place = sending.result()
...     with client.consumer("orders", start=Start.EARLIEST) as consumer:
...         for message in consumer.to_end():
...             print(message.queue_offset, message.body)
"""

# First: it has a say in how grpc is imported.
from kvcq_client.transport import TLS, Credentials, ForkedError, keep_freed_memory  # isort: split

from kvcq_client.access import Access, AsyncAccess, Right, Role, User, UserLimits
from kvcq_client.activity import Activity, GroupLag, TopicTraffic
from kvcq_client.async_client import AsyncClient
from kvcq_client.client import Client
from kvcq_client.consuming import AsyncConsumer, Consumer, ConsumerConfig
from kvcq_client.errors import (
    AlreadyExistsError,
    BufferFullError,
    BusyError,
    ClosedError,
    CorruptRecordError,
    DataLossError,
    DeadlineError,
    DeliveryTimeoutError,
    HandshakeError,
    InvalidArgumentError,
    KvcqError,
    NotFoundError,
    NotPossibleError,
    NumberPassedError,
    NumberReusedError,
    OffsetBehindError,
    OffsetOutOfRangeError,
    PermissionDeniedError,
    RecreatedError,
    ResourceExhaustedError,
    RetryableError,
    ServerError,
    UnauthenticatedError,
    UnavailableError,
)
from kvcq_client.format import StoredMessage, split_records
from kvcq_client.jobs import AsyncJobs, Job, JobFinding, Jobs, JobStatus
from kvcq_client.migration import (
    AsyncMigration,
    DeadRecords,
    Difference,
    FileLayout,
    HeldBack,
    Ingested,
    Migration,
    MigrationConfigTable,
    MigrationEvent,
    MigrationFinding,
    MigrationPhase,
    MigrationPlan,
    MigrationSide,
    MigrationStatus,
    MigrationStep,
    SortedFile,
    VerifyResult,
)
from kvcq_client.producing import AsyncProducer, Producer, ProducerConfig, Sending, SendingMany
from kvcq_client.results import Pulled, QueryPage, StoredBatch
from kvcq_client.settings import ReloadedSettings, ServerSetting, SettingChange
from kvcq_client.values import (
    LIGHT_PREFIX,
    Boundary,
    Bounds,
    GroupOffset,
    Message,
    Placed,
    Queue,
    QueueState,
    Retention,
    Start,
    Topic,
)

__all__ = [
    "LIGHT_PREFIX",
    "TLS",
    "Access",
    "Activity",
    "AlreadyExistsError",
    "AsyncAccess",
    "AsyncClient",
    "AsyncConsumer",
    "AsyncJobs",
    "AsyncMigration",
    "AsyncProducer",
    "Boundary",
    "Bounds",
    "BufferFullError",
    "BusyError",
    "Client",
    "ClosedError",
    "Consumer",
    "ConsumerConfig",
    "CorruptRecordError",
    "Credentials",
    "DataLossError",
    "DeadRecords",
    "DeadlineError",
    "DeliveryTimeoutError",
    "Difference",
    "FileLayout",
    "ForkedError",
    "GroupLag",
    "GroupOffset",
    "HandshakeError",
    "HeldBack",
    "Ingested",
    "InvalidArgumentError",
    "Job",
    "JobFinding",
    "JobStatus",
    "Jobs",
    "KvcqError",
    "Message",
    "Migration",
    "MigrationConfigTable",
    "MigrationEvent",
    "MigrationFinding",
    "MigrationPhase",
    "MigrationPlan",
    "MigrationSide",
    "MigrationStatus",
    "MigrationStep",
    "NotFoundError",
    "NotPossibleError",
    "NumberPassedError",
    "NumberReusedError",
    "OffsetBehindError",
    "OffsetOutOfRangeError",
    "PermissionDeniedError",
    "Placed",
    "Producer",
    "ProducerConfig",
    "Pulled",
    "QueryPage",
    "Queue",
    "QueueState",
    "RecreatedError",
    "ReloadedSettings",
    "ResourceExhaustedError",
    "Retention",
    "RetryableError",
    "Right",
    "Role",
    "Sending",
    "SendingMany",
    "ServerError",
    "ServerSetting",
    "SettingChange",
    "SortedFile",
    "Start",
    "StoredBatch",
    "StoredMessage",
    "Topic",
    "TopicTraffic",
    "UnauthenticatedError",
    "UnavailableError",
    "User",
    "UserLimits",
    "VerifyResult",
    "keep_freed_memory",
    "split_records",
]
