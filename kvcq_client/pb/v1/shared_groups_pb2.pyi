from kvcq_client.pb.v1 import kvcq_pb2 as _kvcq_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HandleOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HANDLE_OUTCOME_UNSPECIFIED: _ClassVar[HandleOutcome]
    HANDLE_OUTCOME_DONE: _ClassVar[HandleOutcome]
    HANDLE_OUTCOME_NOT_IN_FLIGHT: _ClassVar[HandleOutcome]
    HANDLE_OUTCOME_QUEUE_ENDED: _ClassVar[HandleOutcome]
HANDLE_OUTCOME_UNSPECIFIED: HandleOutcome
HANDLE_OUTCOME_DONE: HandleOutcome
HANDLE_OUTCOME_NOT_IN_FLIGHT: HandleOutcome
HANDLE_OUTCOME_QUEUE_ENDED: HandleOutcome

class SharedGroupSettings(_message.Message):
    __slots__ = ("max_deliveries", "invisible_ms", "most_in_flight", "in_order", "from_latest", "paused", "dead_letters_keep_ms", "backoff", "lite")
    MAX_DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    INVISIBLE_MS_FIELD_NUMBER: _ClassVar[int]
    MOST_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    IN_ORDER_FIELD_NUMBER: _ClassVar[int]
    FROM_LATEST_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERS_KEEP_MS_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_FIELD_NUMBER: _ClassVar[int]
    LITE_FIELD_NUMBER: _ClassVar[int]
    max_deliveries: int
    invisible_ms: int
    most_in_flight: int
    in_order: bool
    from_latest: bool
    paused: bool
    dead_letters_keep_ms: int
    backoff: Backoff
    lite: LiteSettings
    def __init__(self, max_deliveries: _Optional[int] = ..., invisible_ms: _Optional[int] = ..., most_in_flight: _Optional[int] = ..., in_order: _Optional[bool] = ..., from_latest: _Optional[bool] = ..., paused: _Optional[bool] = ..., dead_letters_keep_ms: _Optional[int] = ..., backoff: _Optional[_Union[Backoff, _Mapping]] = ..., lite: _Optional[_Union[LiteSettings, _Mapping]] = ...) -> None: ...

class Backoff(_message.Message):
    __slots__ = ("delays_ms",)
    DELAYS_MS_FIELD_NUMBER: _ClassVar[int]
    delays_ms: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, delays_ms: _Optional[_Iterable[int]] = ...) -> None: ...

class LiteSettings(_message.Message):
    __slots__ = ("parent", "client_quota", "exclusive", "wildcard")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    CLIENT_QUOTA_FIELD_NUMBER: _ClassVar[int]
    EXCLUSIVE_FIELD_NUMBER: _ClassVar[int]
    WILDCARD_FIELD_NUMBER: _ClassVar[int]
    parent: str
    client_quota: int
    exclusive: bool
    wildcard: bool
    def __init__(self, parent: _Optional[str] = ..., client_quota: _Optional[int] = ..., exclusive: _Optional[bool] = ..., wildcard: _Optional[bool] = ...) -> None: ...

class CreateGroupRequest(_message.Message):
    __slots__ = ("group", "settings")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    group: str
    settings: SharedGroupSettings
    def __init__(self, group: _Optional[str] = ..., settings: _Optional[_Union[SharedGroupSettings, _Mapping]] = ...) -> None: ...

class CreateGroupResponse(_message.Message):
    __slots__ = ("settings",)
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    settings: SharedGroupSettings
    def __init__(self, settings: _Optional[_Union[SharedGroupSettings, _Mapping]] = ...) -> None: ...

class UpdateGroupRequest(_message.Message):
    __slots__ = ("group", "settings")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    group: str
    settings: SharedGroupSettings
    def __init__(self, group: _Optional[str] = ..., settings: _Optional[_Union[SharedGroupSettings, _Mapping]] = ...) -> None: ...

class UpdateGroupResponse(_message.Message):
    __slots__ = ("settings",)
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    settings: SharedGroupSettings
    def __init__(self, settings: _Optional[_Union[SharedGroupSettings, _Mapping]] = ...) -> None: ...

class DescribeGroupRequest(_message.Message):
    __slots__ = ("group", "page_size", "page_token")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    group: str
    page_size: int
    page_token: str
    def __init__(self, group: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class DescribeGroupResponse(_message.Message):
    __slots__ = ("shared", "settings", "queues", "next_page_token", "dead_letters", "members")
    SHARED_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERS_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    shared: bool
    settings: SharedGroupSettings
    queues: _containers.RepeatedCompositeFieldContainer[SharedQueue]
    next_page_token: str
    dead_letters: int
    members: _containers.RepeatedCompositeFieldContainer[GroupMember]
    def __init__(self, shared: _Optional[bool] = ..., settings: _Optional[_Union[SharedGroupSettings, _Mapping]] = ..., queues: _Optional[_Iterable[_Union[SharedQueue, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., dead_letters: _Optional[int] = ..., members: _Optional[_Iterable[_Union[GroupMember, _Mapping]]] = ...) -> None: ...

class GroupMember(_message.Message):
    __slots__ = ("user", "address", "since_ms", "last_ms", "waiting", "in_flight")
    USER_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_MS_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    user: str
    address: str
    since_ms: int
    last_ms: int
    waiting: int
    in_flight: int
    def __init__(self, user: _Optional[str] = ..., address: _Optional[str] = ..., since_ms: _Optional[int] = ..., last_ms: _Optional[int] = ..., waiting: _Optional[int] = ..., in_flight: _Optional[int] = ...) -> None: ...

class SharedQueue(_message.Message):
    __slots__ = ("topic", "queue_id", "next_offset", "max_offset", "done_below", "in_flight", "waiting_again", "oldest_time_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DONE_BELOW_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    WAITING_AGAIN_FIELD_NUMBER: _ClassVar[int]
    OLDEST_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    next_offset: int
    max_offset: int
    done_below: int
    in_flight: int
    waiting_again: int
    oldest_time_ms: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., next_offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., done_below: _Optional[int] = ..., in_flight: _Optional[int] = ..., waiting_again: _Optional[int] = ..., oldest_time_ms: _Optional[int] = ...) -> None: ...

class ResetGroupRequest(_message.Message):
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

class ResetGroupResponse(_message.Message):
    __slots__ = ("queues", "ended_in_flight")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    ENDED_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[SharedQueue]
    ended_in_flight: int
    def __init__(self, queues: _Optional[_Iterable[_Union[SharedQueue, _Mapping]]] = ..., ended_in_flight: _Optional[int] = ...) -> None: ...

class ReceiveRequest(_message.Message):
    __slots__ = ("group", "topic", "max_messages", "max_bytes", "invisible_ms", "tag_filter", "wait_ms", "form", "attempt_id", "sql_filter", "skip_damaged", "acknowledge", "client_id")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    INVISIBLE_MS_FIELD_NUMBER: _ClassVar[int]
    TAG_FILTER_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    FORM_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_ID_FIELD_NUMBER: _ClassVar[int]
    SQL_FILTER_FIELD_NUMBER: _ClassVar[int]
    SKIP_DAMAGED_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGE_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    max_messages: int
    max_bytes: int
    invisible_ms: int
    tag_filter: str
    wait_ms: int
    form: _kvcq_pb2.RecordForm
    attempt_id: str
    sql_filter: str
    skip_damaged: bool
    acknowledge: _containers.RepeatedScalarFieldContainer[str]
    client_id: str
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., max_messages: _Optional[int] = ..., max_bytes: _Optional[int] = ..., invisible_ms: _Optional[int] = ..., tag_filter: _Optional[str] = ..., wait_ms: _Optional[int] = ..., form: _Optional[_Union[_kvcq_pb2.RecordForm, str]] = ..., attempt_id: _Optional[str] = ..., sql_filter: _Optional[str] = ..., skip_damaged: _Optional[bool] = ..., acknowledge: _Optional[_Iterable[str]] = ..., client_id: _Optional[str] = ...) -> None: ...

class ReceiveResponse(_message.Message):
    __slots__ = ("messages", "records", "handles", "queue_ids", "queue_offsets", "deliveries", "until_ms", "outcomes", "lite_topics", "lost_lite_topics")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    HANDLES_FIELD_NUMBER: _ClassVar[int]
    QUEUE_IDS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    LITE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    LOST_LITE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[_kvcq_pb2.StoredMessage]
    records: bytes
    handles: _containers.RepeatedScalarFieldContainer[str]
    queue_ids: _containers.RepeatedScalarFieldContainer[int]
    queue_offsets: _containers.RepeatedScalarFieldContainer[int]
    deliveries: _containers.RepeatedScalarFieldContainer[int]
    until_ms: _containers.RepeatedScalarFieldContainer[int]
    outcomes: _containers.RepeatedScalarFieldContainer[HandleOutcome]
    lite_topics: _containers.RepeatedScalarFieldContainer[str]
    lost_lite_topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, messages: _Optional[_Iterable[_Union[_kvcq_pb2.StoredMessage, _Mapping]]] = ..., records: _Optional[bytes] = ..., handles: _Optional[_Iterable[str]] = ..., queue_ids: _Optional[_Iterable[int]] = ..., queue_offsets: _Optional[_Iterable[int]] = ..., deliveries: _Optional[_Iterable[int]] = ..., until_ms: _Optional[_Iterable[int]] = ..., outcomes: _Optional[_Iterable[_Union[HandleOutcome, str]]] = ..., lite_topics: _Optional[_Iterable[str]] = ..., lost_lite_topics: _Optional[_Iterable[str]] = ...) -> None: ...

class AcknowledgeRequest(_message.Message):
    __slots__ = ("group", "handles")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    HANDLES_FIELD_NUMBER: _ClassVar[int]
    group: str
    handles: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, group: _Optional[str] = ..., handles: _Optional[_Iterable[str]] = ...) -> None: ...

class AcknowledgeResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedScalarFieldContainer[HandleOutcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[HandleOutcome, str]]] = ...) -> None: ...

class ChangeInvisibleTimeRequest(_message.Message):
    __slots__ = ("group", "handles", "invisible_ms")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    HANDLES_FIELD_NUMBER: _ClassVar[int]
    INVISIBLE_MS_FIELD_NUMBER: _ClassVar[int]
    group: str
    handles: _containers.RepeatedScalarFieldContainer[str]
    invisible_ms: int
    def __init__(self, group: _Optional[str] = ..., handles: _Optional[_Iterable[str]] = ..., invisible_ms: _Optional[int] = ...) -> None: ...

class ChangeInvisibleTimeResponse(_message.Message):
    __slots__ = ("outcomes", "until_ms")
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedScalarFieldContainer[HandleOutcome]
    until_ms: int
    def __init__(self, outcomes: _Optional[_Iterable[_Union[HandleOutcome, str]]] = ..., until_ms: _Optional[int] = ...) -> None: ...

class GiveBackRequest(_message.Message):
    __slots__ = ("group", "handles", "delay_ms", "not_begun")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    HANDLES_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    NOT_BEGUN_FIELD_NUMBER: _ClassVar[int]
    group: str
    handles: _containers.RepeatedScalarFieldContainer[str]
    delay_ms: int
    not_begun: bool
    def __init__(self, group: _Optional[str] = ..., handles: _Optional[_Iterable[str]] = ..., delay_ms: _Optional[int] = ..., not_begun: _Optional[bool] = ...) -> None: ...

class GiveBackResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedScalarFieldContainer[HandleOutcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[HandleOutcome, str]]] = ...) -> None: ...

class RedriveRequest(_message.Message):
    __slots__ = ("group", "offsets", "max_messages", "after")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    group: str
    offsets: _containers.RepeatedScalarFieldContainer[int]
    max_messages: int
    after: int
    def __init__(self, group: _Optional[str] = ..., offsets: _Optional[_Iterable[int]] = ..., max_messages: _Optional[int] = ..., after: _Optional[int] = ...) -> None: ...

class RedriveResponse(_message.Message):
    __slots__ = ("redriven", "left", "complete", "last")
    REDRIVEN_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    redriven: int
    left: int
    complete: bool
    last: int
    def __init__(self, redriven: _Optional[int] = ..., left: _Optional[int] = ..., complete: _Optional[bool] = ..., last: _Optional[int] = ...) -> None: ...

class ListDeadLettersRequest(_message.Message):
    __slots__ = ("group", "page_size", "page_token", "after")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    group: str
    page_size: int
    page_token: str
    after: int
    def __init__(self, group: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., after: _Optional[int] = ...) -> None: ...

class DeadLetter(_message.Message):
    __slots__ = ("offset", "place", "topic", "queue_id", "queue_offset", "message_id", "deliveries", "time_ms")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    offset: int
    place: int
    topic: str
    queue_id: int
    queue_offset: int
    message_id: str
    deliveries: int
    time_ms: int
    def __init__(self, offset: _Optional[int] = ..., place: _Optional[int] = ..., topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., queue_offset: _Optional[int] = ..., message_id: _Optional[str] = ..., deliveries: _Optional[int] = ..., time_ms: _Optional[int] = ...) -> None: ...

class ListDeadLettersResponse(_message.Message):
    __slots__ = ("letters", "next_page_token")
    LETTERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    letters: _containers.RepeatedCompositeFieldContainer[DeadLetter]
    next_page_token: str
    def __init__(self, letters: _Optional[_Iterable[_Union[DeadLetter, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DeleteDeadLettersRequest(_message.Message):
    __slots__ = ("group", "offsets")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    group: str
    offsets: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, group: _Optional[str] = ..., offsets: _Optional[_Iterable[int]] = ...) -> None: ...

class DeleteDeadLettersResponse(_message.Message):
    __slots__ = ("deleted",)
    DELETED_FIELD_NUMBER: _ClassVar[int]
    deleted: int
    def __init__(self, deleted: _Optional[int] = ...) -> None: ...
