from kvcq_client.pb.v1 import kvcq_pb2 as _kvcq_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RecallOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RECALL_OUTCOME_UNSPECIFIED: _ClassVar[RecallOutcome]
    RECALL_OUTCOME_RECALLED: _ClassVar[RecallOutcome]
    RECALL_OUTCOME_NOT_WAITING: _ClassVar[RecallOutcome]
RECALL_OUTCOME_UNSPECIFIED: RecallOutcome
RECALL_OUTCOME_RECALLED: RecallOutcome
RECALL_OUTCOME_NOT_WAITING: RecallOutcome

class DelayedMessage(_message.Message):
    __slots__ = ("message", "deliver_at_ms", "delay_ms", "delay_level")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DELIVER_AT_MS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    DELAY_LEVEL_FIELD_NUMBER: _ClassVar[int]
    message: _kvcq_pb2.Message
    deliver_at_ms: int
    delay_ms: int
    delay_level: int
    def __init__(self, message: _Optional[_Union[_kvcq_pb2.Message, _Mapping]] = ..., deliver_at_ms: _Optional[int] = ..., delay_ms: _Optional[int] = ..., delay_level: _Optional[int] = ...) -> None: ...

class PutDelayedRequest(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[DelayedMessage]
    def __init__(self, messages: _Optional[_Iterable[_Union[DelayedMessage, _Mapping]]] = ...) -> None: ...

class PutDelayedResponse(_message.Message):
    __slots__ = ("handles", "deliver_at_ms")
    HANDLES_FIELD_NUMBER: _ClassVar[int]
    DELIVER_AT_MS_FIELD_NUMBER: _ClassVar[int]
    handles: _containers.RepeatedScalarFieldContainer[str]
    deliver_at_ms: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, handles: _Optional[_Iterable[str]] = ..., deliver_at_ms: _Optional[_Iterable[int]] = ...) -> None: ...

class RecallRequest(_message.Message):
    __slots__ = ("topic", "handles")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    HANDLES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    handles: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topic: _Optional[str] = ..., handles: _Optional[_Iterable[str]] = ...) -> None: ...

class RecallResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedScalarFieldContainer[RecallOutcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[RecallOutcome, str]]] = ...) -> None: ...

class ListDelayedRequest(_message.Message):
    __slots__ = ("topic", "page_size", "page_token")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    topic: str
    page_size: int
    page_token: str
    def __init__(self, topic: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class Delayed(_message.Message):
    __slots__ = ("handle", "deliver_at_ms", "topic", "queue_id", "tag", "keys", "light_queues", "body_bytes")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    DELIVER_AT_MS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    LIGHT_QUEUES_FIELD_NUMBER: _ClassVar[int]
    BODY_BYTES_FIELD_NUMBER: _ClassVar[int]
    handle: str
    deliver_at_ms: int
    topic: str
    queue_id: int
    tag: str
    keys: _containers.RepeatedScalarFieldContainer[str]
    light_queues: _containers.RepeatedScalarFieldContainer[str]
    body_bytes: int
    def __init__(self, handle: _Optional[str] = ..., deliver_at_ms: _Optional[int] = ..., topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., tag: _Optional[str] = ..., keys: _Optional[_Iterable[str]] = ..., light_queues: _Optional[_Iterable[str]] = ..., body_bytes: _Optional[int] = ...) -> None: ...

class ListDelayedResponse(_message.Message):
    __slots__ = ("messages", "next_page_token", "pending", "now_ms")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[Delayed]
    next_page_token: str
    pending: int
    now_ms: int
    def __init__(self, messages: _Optional[_Iterable[_Union[Delayed, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., pending: _Optional[int] = ..., now_ms: _Optional[int] = ...) -> None: ...
