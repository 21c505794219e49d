from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RecordForm(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RECORD_FORM_UNSPECIFIED: _ClassVar[RecordForm]
    RECORD_FORM_DECODED: _ClassVar[RecordForm]
    RECORD_FORM_WHOLE: _ClassVar[RecordForm]

class PullStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PULL_STATUS_UNSPECIFIED: _ClassVar[PullStatus]
    PULL_STATUS_FOUND: _ClassVar[PullStatus]
    PULL_STATUS_NO_NEW_MESSAGE: _ClassVar[PullStatus]
    PULL_STATUS_NO_MATCH: _ClassVar[PullStatus]

class MessageState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MESSAGE_STATE_UNSPECIFIED: _ClassVar[MessageState]
    MESSAGE_STATE_READABLE: _ClassVar[MessageState]
    MESSAGE_STATE_NOT_KEPT: _ClassVar[MessageState]
    MESSAGE_STATE_SUPERSEDED: _ClassVar[MessageState]
    MESSAGE_STATE_PENDING: _ClassVar[MessageState]
    MESSAGE_STATE_OPEN: _ClassVar[MessageState]
    MESSAGE_STATE_GIVEN_UP: _ClassVar[MessageState]
    MESSAGE_STATE_ENDED: _ClassVar[MessageState]

class TraceEventKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRACE_EVENT_KIND_UNSPECIFIED: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_DELIVERED: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_HELD_ON: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_GIVEN_BACK: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_ACKNOWLEDGED: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_DEAD: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_GONE: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_DAMAGED: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_PASSED: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_READ: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_READ_AGAIN: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_RESET: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_RESET_BACK: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_GROUP_DELETED: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_QUEUE_DELETED: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_TIMER_SET: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_FIRED: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_RECALLED: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_TIMER_TOPIC_GONE: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_TIMER_LOST: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_BEGUN: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_CHECKED: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_GAVE_UP: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_COMMITTED: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_ROLLED_BACK: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_TOPIC_GONE: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_RECORD_GONE: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_HANDED_BACK: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_BURIED: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_REDRIVEN: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_DELETED: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_EXPIRED: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_LETTER_GIVEN_UP: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_MOVED: _ClassVar[TraceEventKind]

class TraceGroupState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRACE_GROUP_STATE_UNSPECIFIED: _ClassVar[TraceGroupState]
    TRACE_GROUP_STATE_NOT_RECEIVED: _ClassVar[TraceGroupState]
    TRACE_GROUP_STATE_BEFORE_START: _ClassVar[TraceGroupState]
    TRACE_GROUP_STATE_IN_FLIGHT: _ClassVar[TraceGroupState]
    TRACE_GROUP_STATE_AGAIN: _ClassVar[TraceGroupState]
    TRACE_GROUP_STATE_IN_ORDER: _ClassVar[TraceGroupState]
    TRACE_GROUP_STATE_DONE: _ClassVar[TraceGroupState]
    TRACE_GROUP_STATE_READ: _ClassVar[TraceGroupState]
    TRACE_GROUP_STATE_UNREAD: _ClassVar[TraceGroupState]

class TimeBoundary(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TIME_BOUNDARY_UNSPECIFIED: _ClassVar[TimeBoundary]
    TIME_BOUNDARY_LOWER: _ClassVar[TimeBoundary]
    TIME_BOUNDARY_UPPER: _ClassVar[TimeBoundary]

class MessageType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MESSAGE_TYPE_UNSPECIFIED: _ClassVar[MessageType]
    MESSAGE_TYPE_ANY: _ClassVar[MessageType]
    MESSAGE_TYPE_NORMAL: _ClassVar[MessageType]
    MESSAGE_TYPE_FIFO: _ClassVar[MessageType]
    MESSAGE_TYPE_DELAY: _ClassVar[MessageType]
    MESSAGE_TYPE_TRANSACTION: _ClassVar[MessageType]
    MESSAGE_TYPE_LITE: _ClassVar[MessageType]
    MESSAGE_TYPE_PRIORITY: _ClassVar[MessageType]
RECORD_FORM_UNSPECIFIED: RecordForm
RECORD_FORM_DECODED: RecordForm
RECORD_FORM_WHOLE: RecordForm
PULL_STATUS_UNSPECIFIED: PullStatus
PULL_STATUS_FOUND: PullStatus
PULL_STATUS_NO_NEW_MESSAGE: PullStatus
PULL_STATUS_NO_MATCH: PullStatus
MESSAGE_STATE_UNSPECIFIED: MessageState
MESSAGE_STATE_READABLE: MessageState
MESSAGE_STATE_NOT_KEPT: MessageState
MESSAGE_STATE_SUPERSEDED: MessageState
MESSAGE_STATE_PENDING: MessageState
MESSAGE_STATE_OPEN: MessageState
MESSAGE_STATE_GIVEN_UP: MessageState
MESSAGE_STATE_ENDED: MessageState
TRACE_EVENT_KIND_UNSPECIFIED: TraceEventKind
TRACE_EVENT_KIND_DELIVERED: TraceEventKind
TRACE_EVENT_KIND_HELD_ON: TraceEventKind
TRACE_EVENT_KIND_GIVEN_BACK: TraceEventKind
TRACE_EVENT_KIND_ACKNOWLEDGED: TraceEventKind
TRACE_EVENT_KIND_DEAD: TraceEventKind
TRACE_EVENT_KIND_GONE: TraceEventKind
TRACE_EVENT_KIND_DAMAGED: TraceEventKind
TRACE_EVENT_KIND_PASSED: TraceEventKind
TRACE_EVENT_KIND_READ: TraceEventKind
TRACE_EVENT_KIND_READ_AGAIN: TraceEventKind
TRACE_EVENT_KIND_RESET: TraceEventKind
TRACE_EVENT_KIND_RESET_BACK: TraceEventKind
TRACE_EVENT_KIND_GROUP_DELETED: TraceEventKind
TRACE_EVENT_KIND_QUEUE_DELETED: TraceEventKind
TRACE_EVENT_KIND_TIMER_SET: TraceEventKind
TRACE_EVENT_KIND_FIRED: TraceEventKind
TRACE_EVENT_KIND_RECALLED: TraceEventKind
TRACE_EVENT_KIND_TIMER_TOPIC_GONE: TraceEventKind
TRACE_EVENT_KIND_TIMER_LOST: TraceEventKind
TRACE_EVENT_KIND_BEGUN: TraceEventKind
TRACE_EVENT_KIND_CHECKED: TraceEventKind
TRACE_EVENT_KIND_GAVE_UP: TraceEventKind
TRACE_EVENT_KIND_COMMITTED: TraceEventKind
TRACE_EVENT_KIND_ROLLED_BACK: TraceEventKind
TRACE_EVENT_KIND_TOPIC_GONE: TraceEventKind
TRACE_EVENT_KIND_RECORD_GONE: TraceEventKind
TRACE_EVENT_KIND_HANDED_BACK: TraceEventKind
TRACE_EVENT_KIND_BURIED: TraceEventKind
TRACE_EVENT_KIND_REDRIVEN: TraceEventKind
TRACE_EVENT_KIND_DELETED: TraceEventKind
TRACE_EVENT_KIND_EXPIRED: TraceEventKind
TRACE_EVENT_KIND_LETTER_GIVEN_UP: TraceEventKind
TRACE_EVENT_KIND_MOVED: TraceEventKind
TRACE_GROUP_STATE_UNSPECIFIED: TraceGroupState
TRACE_GROUP_STATE_NOT_RECEIVED: TraceGroupState
TRACE_GROUP_STATE_BEFORE_START: TraceGroupState
TRACE_GROUP_STATE_IN_FLIGHT: TraceGroupState
TRACE_GROUP_STATE_AGAIN: TraceGroupState
TRACE_GROUP_STATE_IN_ORDER: TraceGroupState
TRACE_GROUP_STATE_DONE: TraceGroupState
TRACE_GROUP_STATE_READ: TraceGroupState
TRACE_GROUP_STATE_UNREAD: TraceGroupState
TIME_BOUNDARY_UNSPECIFIED: TimeBoundary
TIME_BOUNDARY_LOWER: TimeBoundary
TIME_BOUNDARY_UPPER: TimeBoundary
MESSAGE_TYPE_UNSPECIFIED: MessageType
MESSAGE_TYPE_ANY: MessageType
MESSAGE_TYPE_NORMAL: MessageType
MESSAGE_TYPE_FIFO: MessageType
MESSAGE_TYPE_DELAY: MessageType
MESSAGE_TYPE_TRANSACTION: MessageType
MESSAGE_TYPE_LITE: MessageType
MESSAGE_TYPE_PRIORITY: MessageType

class Message(_message.Message):
    __slots__ = ("topic", "queue_id", "body", "tag", "keys", "light_queues", "properties", "flag", "born_time_ms", "ordering_key")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    LIGHT_QUEUES_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    FLAG_FIELD_NUMBER: _ClassVar[int]
    BORN_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    ORDERING_KEY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    body: bytes
    tag: str
    keys: _containers.RepeatedScalarFieldContainer[str]
    light_queues: _containers.RepeatedScalarFieldContainer[str]
    properties: _containers.ScalarMap[str, str]
    flag: int
    born_time_ms: int
    ordering_key: str
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., body: _Optional[bytes] = ..., tag: _Optional[str] = ..., keys: _Optional[_Iterable[str]] = ..., light_queues: _Optional[_Iterable[str]] = ..., properties: _Optional[_Mapping[str, str]] = ..., flag: _Optional[int] = ..., born_time_ms: _Optional[int] = ..., ordering_key: _Optional[str] = ...) -> None: ...

class Placed(_message.Message):
    __slots__ = ("queue_id", "queue_offset", "physical_offset", "message_id", "light_queue_offsets")
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PHYSICAL_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    LIGHT_QUEUE_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    queue_id: int
    queue_offset: int
    physical_offset: int
    message_id: str
    light_queue_offsets: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, queue_id: _Optional[int] = ..., queue_offset: _Optional[int] = ..., physical_offset: _Optional[int] = ..., message_id: _Optional[str] = ..., light_queue_offsets: _Optional[_Iterable[int]] = ...) -> None: ...

class StoredMessage(_message.Message):
    __slots__ = ("topic", "queue_id", "queue_offset", "physical_offset", "message_id", "body", "tag", "keys", "properties", "flag", "sys_flag", "born_time_ms", "born_host", "store_time_ms", "store_host", "reconsume_times", "topic_queue_offset")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PHYSICAL_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    FLAG_FIELD_NUMBER: _ClassVar[int]
    SYS_FLAG_FIELD_NUMBER: _ClassVar[int]
    BORN_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    BORN_HOST_FIELD_NUMBER: _ClassVar[int]
    STORE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    STORE_HOST_FIELD_NUMBER: _ClassVar[int]
    RECONSUME_TIMES_FIELD_NUMBER: _ClassVar[int]
    TOPIC_QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    message_id: str
    body: bytes
    tag: str
    keys: _containers.RepeatedScalarFieldContainer[str]
    properties: _containers.ScalarMap[str, str]
    flag: int
    sys_flag: int
    born_time_ms: int
    born_host: str
    store_time_ms: int
    store_host: str
    reconsume_times: int
    topic_queue_offset: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., queue_offset: _Optional[int] = ..., physical_offset: _Optional[int] = ..., message_id: _Optional[str] = ..., body: _Optional[bytes] = ..., tag: _Optional[str] = ..., keys: _Optional[_Iterable[str]] = ..., properties: _Optional[_Mapping[str, str]] = ..., flag: _Optional[int] = ..., sys_flag: _Optional[int] = ..., born_time_ms: _Optional[int] = ..., born_host: _Optional[str] = ..., store_time_ms: _Optional[int] = ..., store_host: _Optional[str] = ..., reconsume_times: _Optional[int] = ..., topic_queue_offset: _Optional[int] = ...) -> None: ...

class PutRequest(_message.Message):
    __slots__ = ("message",)
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    message: Message
    def __init__(self, message: _Optional[_Union[Message, _Mapping]] = ...) -> None: ...

class PutResponse(_message.Message):
    __slots__ = ("placed", "store_time_ms")
    PLACED_FIELD_NUMBER: _ClassVar[int]
    STORE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    placed: Placed
    store_time_ms: int
    def __init__(self, placed: _Optional[_Union[Placed, _Mapping]] = ..., store_time_ms: _Optional[int] = ...) -> None: ...

class ProducerSequence(_message.Message):
    __slots__ = ("producer_id", "sequence")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    producer_id: str
    sequence: int
    def __init__(self, producer_id: _Optional[str] = ..., sequence: _Optional[int] = ...) -> None: ...

class MessageColumns(_message.Message):
    __slots__ = ("topics", "topic_indexes", "queue_ids", "bodies", "tags", "keys", "light_queues", "flags", "born_times_ms", "ordering_keys")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_INDEXES_FIELD_NUMBER: _ClassVar[int]
    QUEUE_IDS_FIELD_NUMBER: _ClassVar[int]
    BODIES_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    LIGHT_QUEUES_FIELD_NUMBER: _ClassVar[int]
    FLAGS_FIELD_NUMBER: _ClassVar[int]
    BORN_TIMES_MS_FIELD_NUMBER: _ClassVar[int]
    ORDERING_KEYS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    topic_indexes: _containers.RepeatedScalarFieldContainer[int]
    queue_ids: _containers.RepeatedScalarFieldContainer[int]
    bodies: _containers.RepeatedScalarFieldContainer[bytes]
    tags: _containers.RepeatedScalarFieldContainer[str]
    keys: _containers.RepeatedScalarFieldContainer[str]
    light_queues: _containers.RepeatedScalarFieldContainer[str]
    flags: _containers.RepeatedScalarFieldContainer[int]
    born_times_ms: _containers.RepeatedScalarFieldContainer[int]
    ordering_keys: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topics: _Optional[_Iterable[str]] = ..., topic_indexes: _Optional[_Iterable[int]] = ..., queue_ids: _Optional[_Iterable[int]] = ..., bodies: _Optional[_Iterable[bytes]] = ..., tags: _Optional[_Iterable[str]] = ..., keys: _Optional[_Iterable[str]] = ..., light_queues: _Optional[_Iterable[str]] = ..., flags: _Optional[_Iterable[int]] = ..., born_times_ms: _Optional[_Iterable[int]] = ..., ordering_keys: _Optional[_Iterable[str]] = ...) -> None: ...

class PutBatchRequest(_message.Message):
    __slots__ = ("messages", "producer", "columns")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    producer: ProducerSequence
    columns: MessageColumns
    def __init__(self, messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ..., producer: _Optional[_Union[ProducerSequence, _Mapping]] = ..., columns: _Optional[_Union[MessageColumns, _Mapping]] = ...) -> None: ...

class PutBatchResponse(_message.Message):
    __slots__ = ("queue_ids", "queue_offsets", "physical_offsets", "light_queue_offsets", "store_time_ms", "store_host", "repeated_batch")
    QUEUE_IDS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    PHYSICAL_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    LIGHT_QUEUE_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    STORE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    STORE_HOST_FIELD_NUMBER: _ClassVar[int]
    REPEATED_BATCH_FIELD_NUMBER: _ClassVar[int]
    queue_ids: _containers.RepeatedScalarFieldContainer[int]
    queue_offsets: _containers.RepeatedScalarFieldContainer[int]
    physical_offsets: _containers.RepeatedScalarFieldContainer[int]
    light_queue_offsets: _containers.RepeatedScalarFieldContainer[int]
    store_time_ms: int
    store_host: bytes
    repeated_batch: bool
    def __init__(self, queue_ids: _Optional[_Iterable[int]] = ..., queue_offsets: _Optional[_Iterable[int]] = ..., physical_offsets: _Optional[_Iterable[int]] = ..., light_queue_offsets: _Optional[_Iterable[int]] = ..., store_time_ms: _Optional[int] = ..., store_host: _Optional[bytes] = ..., repeated_batch: _Optional[bool] = ...) -> None: ...

class PutStreamRequest(_message.Message):
    __slots__ = ("request_id", "batch")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    batch: PutBatchRequest
    def __init__(self, request_id: _Optional[int] = ..., batch: _Optional[_Union[PutBatchRequest, _Mapping]] = ...) -> None: ...

class PutStreamResponse(_message.Message):
    __slots__ = ("request_id", "batch", "error")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    batch: PutBatchResponse
    error: BatchError
    def __init__(self, request_id: _Optional[int] = ..., batch: _Optional[_Union[PutBatchResponse, _Mapping]] = ..., error: _Optional[_Union[BatchError, _Mapping]] = ...) -> None: ...

class BatchError(_message.Message):
    __slots__ = ("code", "message", "reason", "metadata")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    reason: str
    metadata: _containers.ScalarMap[str, str]
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., reason: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ...) -> None: ...

class CallsRequest(_message.Message):
    __slots__ = ("calls",)
    CALLS_FIELD_NUMBER: _ClassVar[int]
    calls: _containers.RepeatedCompositeFieldContainer[Call]
    def __init__(self, calls: _Optional[_Iterable[_Union[Call, _Mapping]]] = ...) -> None: ...

class Call(_message.Message):
    __slots__ = ("id", "method", "request", "timeout_ms", "cancel")
    ID_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    id: int
    method: str
    request: bytes
    timeout_ms: int
    cancel: bool
    def __init__(self, id: _Optional[int] = ..., method: _Optional[str] = ..., request: _Optional[bytes] = ..., timeout_ms: _Optional[int] = ..., cancel: _Optional[bool] = ...) -> None: ...

class CallsResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[CallResult]
    def __init__(self, results: _Optional[_Iterable[_Union[CallResult, _Mapping]]] = ...) -> None: ...

class CallResult(_message.Message):
    __slots__ = ("id", "response", "error")
    ID_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    id: int
    response: bytes
    error: BatchError
    def __init__(self, id: _Optional[int] = ..., response: _Optional[bytes] = ..., error: _Optional[_Union[BatchError, _Mapping]] = ...) -> None: ...

class PullRequest(_message.Message):
    __slots__ = ("topic", "queue_id", "offset", "max_messages", "max_bytes", "tag_filter", "wait_ms", "form", "given_at", "sql_filter")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    TAG_FILTER_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    FORM_FIELD_NUMBER: _ClassVar[int]
    GIVEN_AT_FIELD_NUMBER: _ClassVar[int]
    SQL_FILTER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    offset: int
    max_messages: int
    max_bytes: int
    tag_filter: str
    wait_ms: int
    form: RecordForm
    given_at: int
    sql_filter: str
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., offset: _Optional[int] = ..., max_messages: _Optional[int] = ..., max_bytes: _Optional[int] = ..., tag_filter: _Optional[str] = ..., wait_ms: _Optional[int] = ..., form: _Optional[_Union[RecordForm, str]] = ..., given_at: _Optional[int] = ..., sql_filter: _Optional[str] = ...) -> None: ...

class PullResponse(_message.Message):
    __slots__ = ("status", "messages", "records", "queue_offsets", "next_offset", "min_offset", "max_offset", "given_at")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    GIVEN_AT_FIELD_NUMBER: _ClassVar[int]
    status: PullStatus
    messages: _containers.RepeatedCompositeFieldContainer[StoredMessage]
    records: bytes
    queue_offsets: _containers.RepeatedScalarFieldContainer[int]
    next_offset: int
    min_offset: int
    max_offset: int
    given_at: int
    def __init__(self, status: _Optional[_Union[PullStatus, str]] = ..., messages: _Optional[_Iterable[_Union[StoredMessage, _Mapping]]] = ..., records: _Optional[bytes] = ..., queue_offsets: _Optional[_Iterable[int]] = ..., next_offset: _Optional[int] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., given_at: _Optional[int] = ...) -> None: ...

class QueuePosition(_message.Message):
    __slots__ = ("topic", "queue_id", "offset", "given_at")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    GIVEN_AT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    offset: int
    given_at: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., offset: _Optional[int] = ..., given_at: _Optional[int] = ...) -> None: ...

class SubscribeRequest(_message.Message):
    __slots__ = ("add", "remove", "credit_bytes", "tag_filter", "form", "max_messages", "group", "reader", "sql_filter")
    ADD_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    CREDIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    TAG_FILTER_FIELD_NUMBER: _ClassVar[int]
    FORM_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    READER_FIELD_NUMBER: _ClassVar[int]
    SQL_FILTER_FIELD_NUMBER: _ClassVar[int]
    add: _containers.RepeatedCompositeFieldContainer[QueuePosition]
    remove: _containers.RepeatedCompositeFieldContainer[QueuePosition]
    credit_bytes: int
    tag_filter: str
    form: RecordForm
    max_messages: int
    group: str
    reader: str
    sql_filter: str
    def __init__(self, add: _Optional[_Iterable[_Union[QueuePosition, _Mapping]]] = ..., remove: _Optional[_Iterable[_Union[QueuePosition, _Mapping]]] = ..., credit_bytes: _Optional[int] = ..., tag_filter: _Optional[str] = ..., form: _Optional[_Union[RecordForm, str]] = ..., max_messages: _Optional[int] = ..., group: _Optional[str] = ..., reader: _Optional[str] = ..., sql_filter: _Optional[str] = ...) -> None: ...

class GroupReader(_message.Message):
    __slots__ = ("reader", "address", "since_ms", "topic", "queue_id")
    READER_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    reader: str
    address: str
    since_ms: int
    topic: str
    queue_id: int
    def __init__(self, reader: _Optional[str] = ..., address: _Optional[str] = ..., since_ms: _Optional[int] = ..., topic: _Optional[str] = ..., queue_id: _Optional[int] = ...) -> None: ...

class QueueBatch(_message.Message):
    __slots__ = ("topic", "queue_id", "batch", "error")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    batch: PullResponse
    error: BatchError
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., batch: _Optional[_Union[PullResponse, _Mapping]] = ..., error: _Optional[_Union[BatchError, _Mapping]] = ...) -> None: ...

class SubscribeResponse(_message.Message):
    __slots__ = ("queues", "shared_with")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    SHARED_WITH_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[QueueBatch]
    shared_with: GroupReader
    def __init__(self, queues: _Optional[_Iterable[_Union[QueueBatch, _Mapping]]] = ..., shared_with: _Optional[_Union[GroupReader, _Mapping]] = ...) -> None: ...

class QueryRequest(_message.Message):
    __slots__ = ("topic", "key", "begin_time_ms", "end_time_ms", "max_messages", "cursor", "form")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    BEGIN_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    END_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    FORM_FIELD_NUMBER: _ClassVar[int]
    topic: str
    key: str
    begin_time_ms: int
    end_time_ms: int
    max_messages: int
    cursor: bytes
    form: RecordForm
    def __init__(self, topic: _Optional[str] = ..., key: _Optional[str] = ..., begin_time_ms: _Optional[int] = ..., end_time_ms: _Optional[int] = ..., max_messages: _Optional[int] = ..., cursor: _Optional[bytes] = ..., form: _Optional[_Union[RecordForm, str]] = ...) -> None: ...

class QueryResponse(_message.Message):
    __slots__ = ("messages", "records", "cursor", "complete")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[StoredMessage]
    records: bytes
    cursor: bytes
    complete: bool
    def __init__(self, messages: _Optional[_Iterable[_Union[StoredMessage, _Mapping]]] = ..., records: _Optional[bytes] = ..., cursor: _Optional[bytes] = ..., complete: _Optional[bool] = ...) -> None: ...

class GetRequest(_message.Message):
    __slots__ = ("message_id",)
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    def __init__(self, message_id: _Optional[str] = ...) -> None: ...

class GetResponse(_message.Message):
    __slots__ = ("message",)
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    message: StoredMessage
    def __init__(self, message: _Optional[_Union[StoredMessage, _Mapping]] = ...) -> None: ...

class Queue(_message.Message):
    __slots__ = ("topic", "queue_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ...) -> None: ...

class TraceRequest(_message.Message):
    __slots__ = ("message_id", "handle", "topic", "transaction_id", "page_token")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    handle: str
    topic: str
    transaction_id: str
    page_token: str
    def __init__(self, message_id: _Optional[str] = ..., handle: _Optional[str] = ..., topic: _Optional[str] = ..., transaction_id: _Optional[str] = ..., page_token: _Optional[str] = ...) -> None: ...

class TraceEvent(_message.Message):
    __slots__ = ("kind", "time_ms", "physical_offset", "group", "topic", "queue_id", "queue_offset", "delivery", "until_ms", "position", "message_id", "user", "address")
    KIND_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    PHYSICAL_OFFSET_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    kind: TraceEventKind
    time_ms: int
    physical_offset: int
    group: str
    topic: str
    queue_id: int
    queue_offset: int
    delivery: int
    until_ms: int
    position: int
    message_id: str
    user: str
    address: str
    def __init__(self, kind: _Optional[_Union[TraceEventKind, str]] = ..., time_ms: _Optional[int] = ..., physical_offset: _Optional[int] = ..., group: _Optional[str] = ..., topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., queue_offset: _Optional[int] = ..., delivery: _Optional[int] = ..., until_ms: _Optional[int] = ..., position: _Optional[int] = ..., message_id: _Optional[str] = ..., user: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...

class TraceGroup(_message.Message):
    __slots__ = ("group", "topic", "queue_id", "queue_offset", "state", "deliveries", "until_ms", "user", "address")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    queue_id: int
    queue_offset: int
    state: TraceGroupState
    deliveries: int
    until_ms: int
    user: str
    address: str
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., queue_offset: _Optional[int] = ..., state: _Optional[_Union[TraceGroupState, str]] = ..., deliveries: _Optional[int] = ..., until_ms: _Optional[int] = ..., user: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...

class TraceResponse(_message.Message):
    __slots__ = ("message_id", "physical_offset", "store_time_ms", "topic", "places", "state", "due_ms", "producer_group", "groups", "events", "next_page_token", "searched_until_ms", "log_start_offset", "log_start_ms", "groups_limited")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    PHYSICAL_OFFSET_FIELD_NUMBER: _ClassVar[int]
    STORE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PLACES_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_GROUP_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    SEARCHED_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_START_MS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_LIMITED_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    physical_offset: int
    store_time_ms: int
    topic: str
    places: _containers.RepeatedCompositeFieldContainer[QueuePosition]
    state: MessageState
    due_ms: int
    producer_group: str
    groups: _containers.RepeatedCompositeFieldContainer[TraceGroup]
    events: _containers.RepeatedCompositeFieldContainer[TraceEvent]
    next_page_token: str
    searched_until_ms: int
    log_start_offset: int
    log_start_ms: int
    groups_limited: bool
    def __init__(self, message_id: _Optional[str] = ..., physical_offset: _Optional[int] = ..., store_time_ms: _Optional[int] = ..., topic: _Optional[str] = ..., places: _Optional[_Iterable[_Union[QueuePosition, _Mapping]]] = ..., state: _Optional[_Union[MessageState, str]] = ..., due_ms: _Optional[int] = ..., producer_group: _Optional[str] = ..., groups: _Optional[_Iterable[_Union[TraceGroup, _Mapping]]] = ..., events: _Optional[_Iterable[_Union[TraceEvent, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., searched_until_ms: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., log_start_ms: _Optional[int] = ..., groups_limited: _Optional[bool] = ...) -> None: ...

class GetBatchRequest(_message.Message):
    __slots__ = ("producer",)
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    producer: ProducerSequence
    def __init__(self, producer: _Optional[_Union[ProducerSequence, _Mapping]] = ...) -> None: ...

class GetBatchResponse(_message.Message):
    __slots__ = ("message_count", "records")
    MESSAGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    message_count: int
    records: bytes
    def __init__(self, message_count: _Optional[int] = ..., records: _Optional[bytes] = ...) -> None: ...

class GetProducerRequest(_message.Message):
    __slots__ = ("producer_id",)
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    producer_id: str
    def __init__(self, producer_id: _Optional[str] = ...) -> None: ...

class GetProducerResponse(_message.Message):
    __slots__ = ("next_sequence",)
    NEXT_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    next_sequence: int
    def __init__(self, next_sequence: _Optional[int] = ...) -> None: ...

class GetOffsetsRequest(_message.Message):
    __slots__ = ("queues",)
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[Queue]
    def __init__(self, queues: _Optional[_Iterable[_Union[Queue, _Mapping]]] = ...) -> None: ...

class QueueOffsets(_message.Message):
    __slots__ = ("topic", "queue_id", "min_offset", "max_offset", "log_min_offset", "superseded_messages", "given_at")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SUPERSEDED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    GIVEN_AT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    log_min_offset: int
    superseded_messages: int
    given_at: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., log_min_offset: _Optional[int] = ..., superseded_messages: _Optional[int] = ..., given_at: _Optional[int] = ...) -> None: ...

class GetOffsetsResponse(_message.Message):
    __slots__ = ("queues",)
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[QueueOffsets]
    def __init__(self, queues: _Optional[_Iterable[_Union[QueueOffsets, _Mapping]]] = ...) -> None: ...

class SearchTimeRequest(_message.Message):
    __slots__ = ("topic", "queue_id", "time_ms", "boundary")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    BOUNDARY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    time_ms: int
    boundary: TimeBoundary
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., time_ms: _Optional[int] = ..., boundary: _Optional[_Union[TimeBoundary, str]] = ...) -> None: ...

class SearchTimeResponse(_message.Message):
    __slots__ = ("offset",)
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    offset: int
    def __init__(self, offset: _Optional[int] = ...) -> None: ...

class Retention(_message.Message):
    __slots__ = ("time_ms", "bytes", "messages", "latest")
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    time_ms: int
    bytes: int
    messages: int
    latest: bool
    def __init__(self, time_ms: _Optional[int] = ..., bytes: _Optional[int] = ..., messages: _Optional[int] = ..., latest: _Optional[bool] = ...) -> None: ...

class LiteParent(_message.Message):
    __slots__ = ("expiry_ms", "lite_topics", "has_more", "clients")
    EXPIRY_MS_FIELD_NUMBER: _ClassVar[int]
    LITE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    expiry_ms: int
    lite_topics: int
    has_more: bool
    clients: int
    def __init__(self, expiry_ms: _Optional[int] = ..., lite_topics: _Optional[int] = ..., has_more: _Optional[bool] = ..., clients: _Optional[int] = ...) -> None: ...

class Topic(_message.Message):
    __slots__ = ("name", "queue_count", "created_time_ms", "retention", "message_type", "lite")
    NAME_FIELD_NUMBER: _ClassVar[int]
    QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    CREATED_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_TYPE_FIELD_NUMBER: _ClassVar[int]
    LITE_FIELD_NUMBER: _ClassVar[int]
    name: str
    queue_count: int
    created_time_ms: int
    retention: Retention
    message_type: MessageType
    lite: LiteParent
    def __init__(self, name: _Optional[str] = ..., queue_count: _Optional[int] = ..., created_time_ms: _Optional[int] = ..., retention: _Optional[_Union[Retention, _Mapping]] = ..., message_type: _Optional[_Union[MessageType, str]] = ..., lite: _Optional[_Union[LiteParent, _Mapping]] = ...) -> None: ...

class CreateTopicRequest(_message.Message):
    __slots__ = ("name", "queue_count", "retention", "message_type")
    NAME_FIELD_NUMBER: _ClassVar[int]
    QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_TYPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    queue_count: int
    retention: Retention
    message_type: MessageType
    def __init__(self, name: _Optional[str] = ..., queue_count: _Optional[int] = ..., retention: _Optional[_Union[Retention, _Mapping]] = ..., message_type: _Optional[_Union[MessageType, str]] = ...) -> None: ...

class UpdateTopicRequest(_message.Message):
    __slots__ = ("name", "retention_time_ms", "retention_bytes", "retention_messages", "retention_latest", "message_type")
    NAME_FIELD_NUMBER: _ClassVar[int]
    RETENTION_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_BYTES_FIELD_NUMBER: _ClassVar[int]
    RETENTION_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    RETENTION_LATEST_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_TYPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    retention_time_ms: int
    retention_bytes: int
    retention_messages: int
    retention_latest: bool
    message_type: MessageType
    def __init__(self, name: _Optional[str] = ..., retention_time_ms: _Optional[int] = ..., retention_bytes: _Optional[int] = ..., retention_messages: _Optional[int] = ..., retention_latest: _Optional[bool] = ..., message_type: _Optional[_Union[MessageType, str]] = ...) -> None: ...

class UpdateTopicResponse(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ...) -> None: ...

class CreateTopicsRequest(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[CreateTopicRequest]
    def __init__(self, topics: _Optional[_Iterable[_Union[CreateTopicRequest, _Mapping]]] = ...) -> None: ...

class CreateTopicsResponse(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[Topic]
    def __init__(self, topics: _Optional[_Iterable[_Union[Topic, _Mapping]]] = ...) -> None: ...

class DeleteTopicRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteTopicResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeTopicRequest(_message.Message):
    __slots__ = ("name", "page_size", "page_token")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    name: str
    page_size: int
    page_token: str
    def __init__(self, name: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class DescribeTopicResponse(_message.Message):
    __slots__ = ("topic", "queues", "next_page_token")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    queues: _containers.RepeatedCompositeFieldContainer[QueueOffsets]
    next_page_token: str
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ..., queues: _Optional[_Iterable[_Union[QueueOffsets, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListTopicsRequest(_message.Message):
    __slots__ = ("prefix", "page_size", "page_token", "light_queues", "system_topics")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    LIGHT_QUEUES_FIELD_NUMBER: _ClassVar[int]
    SYSTEM_TOPICS_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    page_size: int
    page_token: str
    light_queues: bool
    system_topics: bool
    def __init__(self, prefix: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., light_queues: _Optional[bool] = ..., system_topics: _Optional[bool] = ...) -> None: ...

class ListTopicsResponse(_message.Message):
    __slots__ = ("topics", "next_page_token")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[Topic]
    next_page_token: str
    def __init__(self, topics: _Optional[_Iterable[_Union[Topic, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class CommitOffsetsRequest(_message.Message):
    __slots__ = ("group", "offsets", "allow_back")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    ALLOW_BACK_FIELD_NUMBER: _ClassVar[int]
    group: str
    offsets: _containers.RepeatedCompositeFieldContainer[QueuePosition]
    allow_back: bool
    def __init__(self, group: _Optional[str] = ..., offsets: _Optional[_Iterable[_Union[QueuePosition, _Mapping]]] = ..., allow_back: _Optional[bool] = ...) -> None: ...

class CommitOffsetsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FetchOffsetsRequest(_message.Message):
    __slots__ = ("group", "queues")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    group: str
    queues: _containers.RepeatedCompositeFieldContainer[Queue]
    def __init__(self, group: _Optional[str] = ..., queues: _Optional[_Iterable[_Union[Queue, _Mapping]]] = ...) -> None: ...

class GroupOffset(_message.Message):
    __slots__ = ("topic", "queue_id", "offset", "min_offset", "max_offset", "lag", "given_at")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    GIVEN_AT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    offset: int
    min_offset: int
    max_offset: int
    lag: int
    given_at: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., offset: _Optional[int] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., lag: _Optional[int] = ..., given_at: _Optional[int] = ...) -> None: ...

class FetchOffsetsResponse(_message.Message):
    __slots__ = ("offsets",)
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    offsets: _containers.RepeatedCompositeFieldContainer[GroupOffset]
    def __init__(self, offsets: _Optional[_Iterable[_Union[GroupOffset, _Mapping]]] = ...) -> None: ...

class ResetOffsetsRequest(_message.Message):
    __slots__ = ("group", "topic", "queue_ids", "earliest", "latest", "time_ms", "offset")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_IDS_FIELD_NUMBER: _ClassVar[int]
    EARLIEST_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    queue_ids: _containers.RepeatedScalarFieldContainer[int]
    earliest: bool
    latest: bool
    time_ms: int
    offset: int
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., queue_ids: _Optional[_Iterable[int]] = ..., earliest: _Optional[bool] = ..., latest: _Optional[bool] = ..., time_ms: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class ResetOffsetsResponse(_message.Message):
    __slots__ = ("offsets",)
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    offsets: _containers.RepeatedCompositeFieldContainer[GroupOffset]
    def __init__(self, offsets: _Optional[_Iterable[_Union[GroupOffset, _Mapping]]] = ...) -> None: ...

class ListGroupOffsetsRequest(_message.Message):
    __slots__ = ("group", "page_size", "page_token")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    group: str
    page_size: int
    page_token: str
    def __init__(self, group: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListGroupOffsetsResponse(_message.Message):
    __slots__ = ("offsets", "next_page_token")
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    offsets: _containers.RepeatedCompositeFieldContainer[GroupOffset]
    next_page_token: str
    def __init__(self, offsets: _Optional[_Iterable[_Union[GroupOffset, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListGroupsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListGroupsResponse(_message.Message):
    __slots__ = ("groups", "next_page_token")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedScalarFieldContainer[str]
    next_page_token: str
    def __init__(self, groups: _Optional[_Iterable[str]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DeleteGroupRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class DeleteGroupResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStatisticsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStatisticsResponse(_message.Message):
    __slots__ = ("values", "version")
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    VALUES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    values: _containers.ScalarMap[str, float]
    version: str
    def __init__(self, values: _Optional[_Mapping[str, float]] = ..., version: _Optional[str] = ...) -> None: ...

class Setting(_message.Message):
    __slots__ = ("name", "value", "default_value", "origin", "where", "live", "rocketmq_name", "meaning", "waiting_value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_VALUE_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    LIVE_FIELD_NUMBER: _ClassVar[int]
    ROCKETMQ_NAME_FIELD_NUMBER: _ClassVar[int]
    MEANING_FIELD_NUMBER: _ClassVar[int]
    WAITING_VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    default_value: str
    origin: str
    where: str
    live: bool
    rocketmq_name: str
    meaning: str
    waiting_value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ..., default_value: _Optional[str] = ..., origin: _Optional[str] = ..., where: _Optional[str] = ..., live: _Optional[bool] = ..., rocketmq_name: _Optional[str] = ..., meaning: _Optional[str] = ..., waiting_value: _Optional[str] = ...) -> None: ...

class GetSettingsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetSettingsResponse(_message.Message):
    __slots__ = ("settings",)
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    settings: _containers.RepeatedCompositeFieldContainer[Setting]
    def __init__(self, settings: _Optional[_Iterable[_Union[Setting, _Mapping]]] = ...) -> None: ...

class SettingChange(_message.Message):
    __slots__ = ("name", "before", "after")
    NAME_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    name: str
    before: str
    after: str
    def __init__(self, name: _Optional[str] = ..., before: _Optional[str] = ..., after: _Optional[str] = ...) -> None: ...

class ReloadSettingsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReloadSettingsResponse(_message.Message):
    __slots__ = ("taken", "waiting")
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    taken: _containers.RepeatedCompositeFieldContainer[SettingChange]
    waiting: _containers.RepeatedCompositeFieldContainer[SettingChange]
    def __init__(self, taken: _Optional[_Iterable[_Union[SettingChange, _Mapping]]] = ..., waiting: _Optional[_Iterable[_Union[SettingChange, _Mapping]]] = ...) -> None: ...

class TopicTraffic(_message.Message):
    __slots__ = ("topic", "messages_in", "bytes_in", "messages_out", "bytes_out")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_IN_FIELD_NUMBER: _ClassVar[int]
    BYTES_IN_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_OUT_FIELD_NUMBER: _ClassVar[int]
    BYTES_OUT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    messages_in: int
    bytes_in: int
    messages_out: int
    bytes_out: int
    def __init__(self, topic: _Optional[str] = ..., messages_in: _Optional[int] = ..., bytes_in: _Optional[int] = ..., messages_out: _Optional[int] = ..., bytes_out: _Optional[int] = ...) -> None: ...

class GroupLag(_message.Message):
    __slots__ = ("group", "topic", "messages", "since_ms", "shared", "in_flight", "waiting_again")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    WAITING_AGAIN_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    messages: int
    since_ms: int
    shared: bool
    in_flight: int
    waiting_again: int
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., messages: _Optional[int] = ..., since_ms: _Optional[int] = ..., shared: _Optional[bool] = ..., in_flight: _Optional[int] = ..., waiting_again: _Optional[int] = ...) -> None: ...

class GroupDeadLetters(_message.Message):
    __slots__ = ("group", "messages")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    group: str
    messages: int
    def __init__(self, group: _Optional[str] = ..., messages: _Optional[int] = ...) -> None: ...

class GetActivityRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetActivityResponse(_message.Message):
    __slots__ = ("topics", "groups", "topic_count", "group_count", "groups_at_ms", "dead_letters")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_COUNT_FIELD_NUMBER: _ClassVar[int]
    GROUP_COUNT_FIELD_NUMBER: _ClassVar[int]
    GROUPS_AT_MS_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicTraffic]
    groups: _containers.RepeatedCompositeFieldContainer[GroupLag]
    topic_count: int
    group_count: int
    groups_at_ms: int
    dead_letters: _containers.RepeatedCompositeFieldContainer[GroupDeadLetters]
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicTraffic, _Mapping]]] = ..., groups: _Optional[_Iterable[_Union[GroupLag, _Mapping]]] = ..., topic_count: _Optional[int] = ..., group_count: _Optional[int] = ..., groups_at_ms: _Optional[int] = ..., dead_letters: _Optional[_Iterable[_Union[GroupDeadLetters, _Mapping]]] = ...) -> None: ...

class EchoRequest(_message.Message):
    __slots__ = ("batch", "payload")
    BATCH_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    batch: PutBatchRequest
    payload: bytes
    def __init__(self, batch: _Optional[_Union[PutBatchRequest, _Mapping]] = ..., payload: _Optional[bytes] = ...) -> None: ...

class EchoResponse(_message.Message):
    __slots__ = ("batch", "payload")
    BATCH_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    batch: PutBatchRequest
    payload: bytes
    def __init__(self, batch: _Optional[_Union[PutBatchRequest, _Mapping]] = ..., payload: _Optional[bytes] = ...) -> None: ...
