from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Role(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROLE_UNSPECIFIED: _ClassVar[Role]
    ROLE_PUBLISH: _ClassVar[Role]
    ROLE_SUBSCRIBE: _ClassVar[Role]
    ROLE_ADMIN: _ClassVar[Role]
ROLE_UNSPECIFIED: Role
ROLE_PUBLISH: Role
ROLE_SUBSCRIBE: Role
ROLE_ADMIN: Role

class AccessRight(_message.Message):
    __slots__ = ("role", "topic", "group")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    role: Role
    topic: str
    group: str
    def __init__(self, role: _Optional[_Union[Role, str]] = ..., topic: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class UserLimits(_message.Message):
    __slots__ = ("connections", "calls", "bytes_per_s", "messages_per_s")
    CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_PER_S_FIELD_NUMBER: _ClassVar[int]
    connections: int
    calls: int
    bytes_per_s: int
    messages_per_s: int
    def __init__(self, connections: _Optional[int] = ..., calls: _Optional[int] = ..., bytes_per_s: _Optional[int] = ..., messages_per_s: _Optional[int] = ...) -> None: ...

class User(_message.Message):
    __slots__ = ("user", "admin", "rights", "limits", "created_ms")
    USER_FIELD_NUMBER: _ClassVar[int]
    ADMIN_FIELD_NUMBER: _ClassVar[int]
    RIGHTS_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    user: str
    admin: bool
    rights: _containers.RepeatedCompositeFieldContainer[AccessRight]
    limits: UserLimits
    created_ms: int
    def __init__(self, user: _Optional[str] = ..., admin: _Optional[bool] = ..., rights: _Optional[_Iterable[_Union[AccessRight, _Mapping]]] = ..., limits: _Optional[_Union[UserLimits, _Mapping]] = ..., created_ms: _Optional[int] = ...) -> None: ...

class CreateUserRequest(_message.Message):
    __slots__ = ("user", "admin", "secret", "limits")
    USER_FIELD_NUMBER: _ClassVar[int]
    ADMIN_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    user: str
    admin: bool
    secret: str
    limits: UserLimits
    def __init__(self, user: _Optional[str] = ..., admin: _Optional[bool] = ..., secret: _Optional[str] = ..., limits: _Optional[_Union[UserLimits, _Mapping]] = ...) -> None: ...

class SecretResponse(_message.Message):
    __slots__ = ("user", "secret")
    USER_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    user: str
    secret: str
    def __init__(self, user: _Optional[str] = ..., secret: _Optional[str] = ...) -> None: ...

class DeleteUserRequest(_message.Message):
    __slots__ = ("user",)
    USER_FIELD_NUMBER: _ClassVar[int]
    user: str
    def __init__(self, user: _Optional[str] = ...) -> None: ...

class DeleteUserResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListUsersRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListUsersResponse(_message.Message):
    __slots__ = ("users", "next_page_token")
    USERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    users: _containers.RepeatedCompositeFieldContainer[User]
    next_page_token: str
    def __init__(self, users: _Optional[_Iterable[_Union[User, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class RotateSecretRequest(_message.Message):
    __slots__ = ("user", "secret")
    USER_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    user: str
    secret: str
    def __init__(self, user: _Optional[str] = ..., secret: _Optional[str] = ...) -> None: ...

class SetLimitsRequest(_message.Message):
    __slots__ = ("user", "limits")
    USER_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    user: str
    limits: UserLimits
    def __init__(self, user: _Optional[str] = ..., limits: _Optional[_Union[UserLimits, _Mapping]] = ...) -> None: ...

class ChangeRightsRequest(_message.Message):
    __slots__ = ("user", "rights")
    USER_FIELD_NUMBER: _ClassVar[int]
    RIGHTS_FIELD_NUMBER: _ClassVar[int]
    user: str
    rights: _containers.RepeatedCompositeFieldContainer[AccessRight]
    def __init__(self, user: _Optional[str] = ..., rights: _Optional[_Iterable[_Union[AccessRight, _Mapping]]] = ...) -> None: ...

class GetUserRequest(_message.Message):
    __slots__ = ("user",)
    USER_FIELD_NUMBER: _ClassVar[int]
    user: str
    def __init__(self, user: _Optional[str] = ...) -> None: ...

class WhoAmIRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
