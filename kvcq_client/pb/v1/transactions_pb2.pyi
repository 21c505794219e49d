from kvcq_client.pb.v1 import kvcq_pb2 as _kvcq_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BeginTransactionRequest(_message.Message):
    __slots__ = ("message", "group", "immunity_ms")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    IMMUNITY_MS_FIELD_NUMBER: _ClassVar[int]
    message: _kvcq_pb2.Message
    group: str
    immunity_ms: int
    def __init__(self, message: _Optional[_Union[_kvcq_pb2.Message, _Mapping]] = ..., group: _Optional[str] = ..., immunity_ms: _Optional[int] = ...) -> None: ...

class BeginTransactionResponse(_message.Message):
    __slots__ = ("transaction_id",)
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    transaction_id: str
    def __init__(self, transaction_id: _Optional[str] = ...) -> None: ...

class DecideTransactionRequest(_message.Message):
    __slots__ = ("transaction_id", "commit")
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    transaction_id: str
    commit: bool
    def __init__(self, transaction_id: _Optional[str] = ..., commit: _Optional[bool] = ...) -> None: ...

class DecideTransactionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Transaction(_message.Message):
    __slots__ = ("transaction_id", "group", "topic", "begun_ms", "checks", "next_check_ms")
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BEGUN_MS_FIELD_NUMBER: _ClassVar[int]
    CHECKS_FIELD_NUMBER: _ClassVar[int]
    NEXT_CHECK_MS_FIELD_NUMBER: _ClassVar[int]
    transaction_id: str
    group: str
    topic: str
    begun_ms: int
    checks: int
    next_check_ms: int
    def __init__(self, transaction_id: _Optional[str] = ..., group: _Optional[str] = ..., topic: _Optional[str] = ..., begun_ms: _Optional[int] = ..., checks: _Optional[int] = ..., next_check_ms: _Optional[int] = ...) -> None: ...

class ListTransactionsRequest(_message.Message):
    __slots__ = ("group", "given_up", "page_size", "page_token")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    GIVEN_UP_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    group: str
    given_up: bool
    page_size: int
    page_token: str
    def __init__(self, group: _Optional[str] = ..., given_up: _Optional[bool] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListTransactionsResponse(_message.Message):
    __slots__ = ("transactions", "next_page_token", "open", "given_up", "now_ms")
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    GIVEN_UP_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    transactions: _containers.RepeatedCompositeFieldContainer[Transaction]
    next_page_token: str
    open: int
    given_up: int
    now_ms: int
    def __init__(self, transactions: _Optional[_Iterable[_Union[Transaction, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., open: _Optional[int] = ..., given_up: _Optional[int] = ..., now_ms: _Optional[int] = ...) -> None: ...

class WatchTransactionsRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class TransactionCheck(_message.Message):
    __slots__ = ("transaction_id", "message", "checks")
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CHECKS_FIELD_NUMBER: _ClassVar[int]
    transaction_id: str
    message: _kvcq_pb2.Message
    checks: int
    def __init__(self, transaction_id: _Optional[str] = ..., message: _Optional[_Union[_kvcq_pb2.Message, _Mapping]] = ..., checks: _Optional[int] = ...) -> None: ...
