from kvcq_client.pb.v1 import kvcq_pb2 as _kvcq_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LiteAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LITE_ACTION_UNSPECIFIED: _ClassVar[LiteAction]
    LITE_ACTION_ADD: _ClassVar[LiteAction]
    LITE_ACTION_REMOVE: _ClassVar[LiteAction]
    LITE_ACTION_COMPLETE: _ClassVar[LiteAction]
    LITE_ACTION_LEAVE: _ClassVar[LiteAction]
LITE_ACTION_UNSPECIFIED: LiteAction
LITE_ACTION_ADD: LiteAction
LITE_ACTION_REMOVE: LiteAction
LITE_ACTION_COMPLETE: LiteAction
LITE_ACTION_LEAVE: LiteAction

class CreateLiteParentRequest(_message.Message):
    __slots__ = ("topic", "expiry_ms", "queue_count")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    EXPIRY_MS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    expiry_ms: int
    queue_count: int
    def __init__(self, topic: _Optional[str] = ..., expiry_ms: _Optional[int] = ..., queue_count: _Optional[int] = ...) -> None: ...

class CreateLiteParentResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeLiteParentRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class DescribeLiteParentResponse(_message.Message):
    __slots__ = ("expiry_ms",)
    EXPIRY_MS_FIELD_NUMBER: _ClassVar[int]
    expiry_ms: int
    def __init__(self, expiry_ms: _Optional[int] = ...) -> None: ...

class ListLiteParentsRequest(_message.Message):
    __slots__ = ("prefix", "page_size", "page_token")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    page_size: int
    page_token: str
    def __init__(self, prefix: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListedLiteParent(_message.Message):
    __slots__ = ("topic", "lite")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    LITE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    lite: _kvcq_pb2.LiteParent
    def __init__(self, topic: _Optional[str] = ..., lite: _Optional[_Union[_kvcq_pb2.LiteParent, _Mapping]] = ...) -> None: ...

class ListLiteParentsResponse(_message.Message):
    __slots__ = ("parents", "next_page_token")
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    parents: _containers.RepeatedCompositeFieldContainer[ListedLiteParent]
    next_page_token: str
    def __init__(self, parents: _Optional[_Iterable[_Union[ListedLiteParent, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class SyncLiteSubscriptionsRequest(_message.Message):
    __slots__ = ("group", "client_id", "action", "lite_topics", "version", "earliest", "latest", "time_ms", "offset", "from_end")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    LITE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    EARLIEST_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    FROM_END_FIELD_NUMBER: _ClassVar[int]
    group: str
    client_id: str
    action: LiteAction
    lite_topics: _containers.RepeatedScalarFieldContainer[str]
    version: int
    earliest: bool
    latest: bool
    time_ms: int
    offset: int
    from_end: int
    def __init__(self, group: _Optional[str] = ..., client_id: _Optional[str] = ..., action: _Optional[_Union[LiteAction, str]] = ..., lite_topics: _Optional[_Iterable[str]] = ..., version: _Optional[int] = ..., earliest: _Optional[bool] = ..., latest: _Optional[bool] = ..., time_ms: _Optional[int] = ..., offset: _Optional[int] = ..., from_end: _Optional[int] = ...) -> None: ...

class SyncLiteSubscriptionsResponse(_message.Message):
    __slots__ = ("subscribed", "lost")
    SUBSCRIBED_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    subscribed: int
    lost: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, subscribed: _Optional[int] = ..., lost: _Optional[_Iterable[str]] = ...) -> None: ...

class ListLiteTopicsRequest(_message.Message):
    __slots__ = ("topic", "prefix", "page_size", "page_token", "with_states")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    WITH_STATES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    prefix: str
    page_size: int
    page_token: str
    with_states: bool
    def __init__(self, topic: _Optional[str] = ..., prefix: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., with_states: _Optional[bool] = ...) -> None: ...

class LiteTopicState(_message.Message):
    __slots__ = ("min_offset", "max_offset", "last_ms", "ends_ms", "clients")
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_MS_FIELD_NUMBER: _ClassVar[int]
    ENDS_MS_FIELD_NUMBER: _ClassVar[int]
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    min_offset: int
    max_offset: int
    last_ms: int
    ends_ms: int
    clients: int
    def __init__(self, min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., last_ms: _Optional[int] = ..., ends_ms: _Optional[int] = ..., clients: _Optional[int] = ...) -> None: ...

class ListLiteTopicsResponse(_message.Message):
    __slots__ = ("lite_topics", "next_page_token", "states")
    LITE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    lite_topics: _containers.RepeatedScalarFieldContainer[str]
    next_page_token: str
    states: _containers.RepeatedCompositeFieldContainer[LiteTopicState]
    def __init__(self, lite_topics: _Optional[_Iterable[str]] = ..., next_page_token: _Optional[str] = ..., states: _Optional[_Iterable[_Union[LiteTopicState, _Mapping]]] = ...) -> None: ...

class DeleteLiteTopicsRequest(_message.Message):
    __slots__ = ("topic", "lite_topics")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    LITE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    lite_topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topic: _Optional[str] = ..., lite_topics: _Optional[_Iterable[str]] = ...) -> None: ...

class DeleteLiteTopicsResponse(_message.Message):
    __slots__ = ("deleted",)
    DELETED_FIELD_NUMBER: _ClassVar[int]
    deleted: int
    def __init__(self, deleted: _Optional[int] = ...) -> None: ...
