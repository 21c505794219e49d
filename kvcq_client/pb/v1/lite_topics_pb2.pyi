from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
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
    __slots__ = ("topic", "prefix", "page_size", "page_token")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    topic: str
    prefix: str
    page_size: int
    page_token: str
    def __init__(self, topic: _Optional[str] = ..., prefix: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListLiteTopicsResponse(_message.Message):
    __slots__ = ("lite_topics", "next_page_token")
    LITE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    lite_topics: _containers.RepeatedScalarFieldContainer[str]
    next_page_token: str
    def __init__(self, lite_topics: _Optional[_Iterable[str]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

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
