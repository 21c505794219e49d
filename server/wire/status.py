"""Maps exceptions to gRPC statuses, in one table, and defines the rich form of errors.

An error has one google.rpc.ErrorInfo: a reason in UPPER_SNAKE, the domain "kvcq", and the error's
own values as metadata. The code says what a caller can do:

| code                | meaning here                                                            |
|---------------------|-------------------------------------------------------------------------|
| INVALID_ARGUMENT    | the request exceeds a limit; the metadata names the field               |
| NOT_FOUND           | no such topic, queue or message                                         |
| ALREADY_EXISTS      | a topic of that name with other settings                                |
| OUT_OF_RANGE        | the offset is outside min..max; both are in the metadata                |
| RESOURCE_EXHAUSTED  | the disk is full: puts are rejected, reads continue; or a limit of      |
|                     | calls or memory is reached: the same call may succeed a little later    |
| FAILED_PRECONDITION | the same call cannot succeed before something else is done              |
| ABORTED             | the job was cancelled; it may be started again                          |
| UNAVAILABLE         | the same call may succeed a little later                                |
| DATA_LOSS           | data on disk does not verify                                            |
| INTERNAL            | a defect of the server; its log has the request id and the traceback    |
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, NamedTuple

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from kvcq import errors as kvcq_errors
from migration import errors as migration_errors
from server import errors as server_errors
from store import errors as store_errors
from store.state import CorruptRowError, CorruptStateError

if TYPE_CHECKING:
    from collections.abc import Iterator

DOMAIN = "kvcq"

#: Maximum for an error's message, and for each of its values. Clients accept 8 KiB of metadata in
#: all; the message is in it twice, and once with three bytes for each character that is not ASCII.
MAX_MESSAGE_BYTES = 1000
MAX_VALUE_BYTES = 400
_CUT = "…"

_Code = grpc.StatusCode


class StatusRow(NamedTuple):
    """The status of one exception class."""

    code: grpc.StatusCode
    reason: str
    attributes: tuple[str, ...] = ()  # attributes of the exception that become metadata


#: The errors of each code: reason, and attributes that become metadata.
_ERRORS: dict[grpc.StatusCode, dict[type[store_errors.StoreError], str]] = {
    _Code.INVALID_ARGUMENT: {
        store_errors.InvalidArgumentError: "INVALID_ARGUMENT field",
        server_errors.ClientStatusError: "CLIENT_STATUS status",
    },
    _Code.NOT_FOUND: {
        store_errors.UnknownTopicError: "UNKNOWN_TOPIC topic",
        store_errors.UnknownGroupError: "UNKNOWN_GROUP group",
        store_errors.UnknownQueueError: "UNKNOWN_QUEUE topic queue_id queue_count is_new",
        store_errors.UnknownTransactionError: "UNKNOWN_TRANSACTION transaction_id",
        store_errors.MessageNotFoundError: "MESSAGE_NOT_FOUND message_id",
        server_errors.UnknownServiceError: "UNKNOWN_SERVICE service",
        server_errors.UnknownUserError: "UNKNOWN_USER user",
        migration_errors.UnknownJobError: "UNKNOWN_JOB job_id",
    },
    _Code.ALREADY_EXISTS: {
        store_errors.TopicExistsError: "TOPIC_EXISTS topic queue_count",
        store_errors.GroupExistsError: "GROUP_EXISTS group",
        server_errors.UserExistsError: "USER_EXISTS user",
    },
    _Code.OUT_OF_RANGE: {
        store_errors.OffsetOutOfRangeError: (
            "OFFSET_OUT_OF_RANGE topic queue_id queue_offset min_offset max_offset"
        ),
        store_errors.RecreatedQueueError: (
            "QUEUE_RECREATED topic queue_id queue_offset min_offset max_offset"
        ),
    },
    _Code.UNAUTHENTICATED: {
        server_errors.UnauthenticatedError: "UNAUTHENTICATED",
    },
    _Code.PERMISSION_DENIED: {
        server_errors.ForbiddenError: "PERMISSION_DENIED user topic group",
    },
    _Code.FAILED_PRECONDITION: {
        server_errors.AccessOffError: "ACCESS_OFF",
        server_errors.ServedElsewhereError: "SERVED_ELSEWHERE host port",
        server_errors.LastAdminError: "LAST_ADMINISTRATOR user",
        server_errors.KeyFileError: "KEY_FILE_REFUSED",
        server_errors.OutOfSequenceError: "OUT_OF_SEQUENCE producer_id sequence expected_sequence",
        server_errors.NumberReusedError: "NUMBER_REUSED field producer_id sequence",
        server_errors.NumberPassedError: (
            "NUMBER_PASSED field producer_id sequence expected_sequence"
        ),
        server_errors.NumbersUnknownError: "NUMBERS_UNKNOWN producer_id",
        server_errors.JobRunningError: "JOB_RUNNING kind job_id",
        server_errors.SettingsRefusedError: "SETTINGS_REFUSED field next_command",
        migration_errors.IllegalStepError: "ILLEGAL_STEP step phase next_command hint",
        migration_errors.VerificationError: "VERIFICATION_BROKE_OFF side",
        kvcq_errors.BackupRefusedError: "BACKUP_REFUSED",
        kvcq_errors.EngineNewerError: "STORE_NEWER",
        store_errors.TransactionEndedError: "TRANSACTION_ENDED transaction_id outcome",
        store_errors.GroupKindError: "GROUP_KIND group kind",
        store_errors.LiteGroupError: "LITE_GROUP group parent",
        store_errors.UnknownLiteClientError: "LITE_CLIENT_UNKNOWN group client_id",
        store_errors.OffsetBehindError: (
            "OFFSET_BEHIND group topic queue_id offset committed_offset"
        ),
        store_errors.StoreFailedError: "STORE_FAILED",
        store_errors.FlushError: "FLUSH_FAILED",
        store_errors.StoreDirError: "STORE_DIRECTORY_REFUSED path",
        store_errors.StoreLockedError: "STORE_LOCKED path",
        store_errors.StoreFormatError: "STORE_FORMAT_REFUSED path",
    },
    _Code.RESOURCE_EXHAUSTED: {
        server_errors.MemoryFullError: "MEMORY_FULL",
        server_errors.RequestLateError: "REQUEST_LATE",
        server_errors.TooManyCallsError: "TOO_MANY_CALLS kind limit",
        server_errors.TooManyGroupsError: "TOO_MANY_GROUPS limit",
        server_errors.UserLimitError: "USER_LIMIT user limit",
        store_errors.TooManyTransactionsError: "TOO_MANY_TRANSACTIONS setting",
        kvcq_errors.EngineFullError: "DISK_FULL",
        store_errors.DiskFullError: "DISK_FULL",
        store_errors.LiteQuotaError: "LITE_QUOTA scope limit",
    },
    _Code.UNAVAILABLE: {
        server_errors.ServerStartingError: "STARTING step progress_percent",
        server_errors.ServerDrainingError: "DRAINING",
        server_errors.ServerBindError: "CANNOT_LISTEN host port",
        server_errors.FrontError: "CANNOT_LISTEN",
        store_errors.StoreClosedError: "STORE_CLOSED",
        store_errors.StoreBusyError: "STORE_BUSY",
        store_errors.OutOfDescriptorsError: "OUT_OF_DESCRIPTORS",
        kvcq_errors.BackupTargetError: "BACKUP_TARGET",
        kvcq_errors.EngineUnavailableError: "ENGINE_UNAVAILABLE",
        store_errors.FlushTimeoutError: "FLUSH_DISK_TIMEOUT end_offset",
    },
    _Code.ABORTED: {
        migration_errors.JobCancelledError: "JOB_CANCELLED",
    },
    _Code.DATA_LOSS: {
        CorruptRowError: "CORRUPT_STATE",
        CorruptStateError: "CORRUPT_STATE",
        store_errors.UnreadableTransactionError: "UNREADABLE_TRANSACTION",
        store_errors.CorruptRecordError: "CORRUPT_RECORD physical_offset",
        store_errors.CorruptMessageError: (
            "CORRUPT_RECORD topic queue_id queue_offset physical_offset next_offset"
        ),
        store_errors.CorruptHitError: "CORRUPT_RECORD physical_offset next_cursor",
        store_errors.DamagedQueueError: "DAMAGED_QUEUE topic queue_id queue_offset next_offset",
        kvcq_errors.BackupDamagedError: "BACKUP_DAMAGED",
        kvcq_errors.CorruptValueError: "CORRUPT_VALUE",
        kvcq_errors.EngineDamagedError: "ENGINE_DAMAGED",
    },
    _Code.INTERNAL: {
        kvcq_errors.BackupError: "BACKUP_FAILED",
        kvcq_errors.EngineFailedError: "ENGINE_FAILED",
    },
}

STATUS_BY_ERROR = {
    kind: StatusRow(code, reason, tuple(attributes))
    for code, rows in _ERRORS.items()
    for kind, (reason, *attributes) in ((kind, words.split()) for kind, words in rows.items())
}

INTERNAL_ROW = StatusRow(_Code.INTERNAL, "INTERNAL")


class Refusal(NamedTuple):
    """An error in the terms of the API."""

    code: grpc.StatusCode
    message: str
    reason: str
    metadata: dict[str, str]

    @property
    def code_number(self) -> int:
        number: int = self.code.value[0]
        return number


def row_of(error: BaseException) -> StatusRow | None:
    """The row of the exception's class, or of its nearest ancestor that has one."""
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return STATUS_BY_ERROR[store_errors.OutOfDescriptorsError]
    for kind in _known_kinds(type(error)):
        return STATUS_BY_ERROR[kind]
    return None


def _known_kinds(kind: type[BaseException]) -> Iterator[type[store_errors.StoreError]]:
    for parent in kind.__mro__:
        if issubclass(parent, store_errors.StoreError) and parent in STATUS_BY_ERROR:
            yield parent


def refusal_of(error: BaseException, request_id: str) -> Refusal:
    """The error for a caller. An unexpected exception only reveals its request id."""
    row = row_of(error)
    if row is None:
        return Refusal(
            INTERNAL_ROW.code,
            f"internal error; see request id {request_id} in the server's log",
            INTERNAL_ROW.reason,
            {"requestId": request_id},
        )
    values = ((name, getattr(error, name)) for name in row.attributes)
    metadata = {
        _lower_camel(name): _cut(_text(value), MAX_VALUE_BYTES)
        for name, value in values
        if value is not None
    }
    metadata["requestId"] = request_id
    return Refusal(row.code, _cut(str(error), MAX_MESSAGE_BYTES), row.reason, metadata)


def rich_status(refusal: Refusal) -> status_pb2.Status:
    """The google.rpc.Status with its one ErrorInfo."""
    detail = any_pb2.Any()
    detail.Pack(
        error_details_pb2.ErrorInfo(reason=refusal.reason, domain=DOMAIN, metadata=refusal.metadata)
    )
    return status_pb2.Status(code=refusal.code_number, message=refusal.message, details=[detail])


def _cut(text: str, limit: int) -> str:
    """The text, cut to `limit` bytes with a mark at the end if it is longer."""
    data = text.encode(errors="replace")
    if len(data) <= limit:
        return text
    return data[: limit - len(_CUT.encode())].decode(errors="ignore") + _CUT


def _text(value: object) -> str:
    """Bytes as hexadecimal digits."""
    return value.hex() if isinstance(value, bytes) else str(value)


def _lower_camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.title() for part in rest)
