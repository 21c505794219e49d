"""Protobuf responses as the types that the client returns.

A type is a frozen dataclass, or a NamedTuple, whose fields have the names of the message's fields;
`Annotated[..., Wire("name")]` says that one is called differently in the message. The annotation
decides what a field becomes:

| annotation             | value                                                            |
|------------------------|------------------------------------------------------------------|
| `int`, `str`, ...      | as it is in the message                                          |
| `X | None`             | None when the field is absent, 0, empty or unspecified           |
| an `Enum`              | the member of the value's name, without the prefix               |
| another such type      | the same for the message in the field                            |
| `list[X]`, `tuple[X, ...]` | the items of a repeated field                                |
| `Mapping[X, Y]`        | a dict                                                           |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from kvcq_client.errors import ServerError
from kvcq_client.values import position

if TYPE_CHECKING:
    from enum import Enum

    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
    from google.protobuf.message import Message

T = TypeVar("T")
_Read = Callable[[Any], Any]


class Wire(NamedTuple):
    """A field's name in the message, where it is another one."""

    name: str


def from_wire(kind: type[T], message: Message) -> T:
    """The message as a `kind`.

    Raises ServerError on an enum value that this version does not know.
    """
    reads = _reads_of(kind, message.DESCRIPTOR)  # type: ignore[arg-type] # a type has a hash
    return kind(*[read(message) for read in reads])


def position_in(message: Any, offset: int) -> int:  # noqa: ANN401 - one with `given_at`
    """An offset in the message, with what the server says of when it gave it."""
    return position(offset, message.given_at if message.HasField("given_at") else None)


@cache
def _reads_of(kind: Callable[..., Any], descriptor: Descriptor) -> list[_Read]:
    """What reads each field of the `kind` from such a message, in the order of its fields."""
    hints = get_type_hints(kind, include_extras=True)
    return [_read_of(name, hints[name], descriptor) for name in kind.__match_args__]  # type: ignore[attr-defined]


def _read_of(name: str, hint: Any, descriptor: Descriptor) -> _Read:  # noqa: ANN401 - any annotation
    if get_origin(hint) is Annotated:
        hint, (name,) = get_args(hint)
    field = descriptor.fields_by_name[name]
    is_optional = get_origin(hint) in (Union, UnionType) and NoneType in get_args(hint)
    if is_optional:
        [hint] = [each for each in get_args(hint) if each is not NoneType]
    convert = _conversion(hint, field)

    def read(message: Message) -> Any:  # noqa: ANN401 - what the annotation says
        if is_optional and field.has_presence:
            if not message.HasField(name):
                return None
        elif is_optional and not getattr(message, name):
            return None
        value = getattr(message, name)
        return value if convert is None else convert(value)

    return read


def _conversion(hint: Any, field: FieldDescriptor) -> _Read | None:  # noqa: ANN401 - any annotation
    """What makes the annotation's type of the field's value; None: nothing is to be done."""
    origin = get_origin(hint)
    if origin is Mapping:
        return dict
    if origin in (list, tuple):
        item = _conversion(get_args(hint)[0], field)
        return origin if item is None else lambda values: origin(map(item, values))
    if field.enum_type is not None:
        return _member_of(hint, field.enum_type)
    if field.message_type is not None:
        return lambda value: from_wire(hint, value)
    return None


def _member_of(kind: type[Enum], descriptor: EnumDescriptor) -> _Read:
    prefix = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", descriptor.name).upper() + "_"
    members = {
        value.number: kind[value.name.removeprefix(prefix)]
        for value in descriptor.values
        if value.number  # 0 is unspecified
    }

    def member(number: int) -> Enum:
        try:
            return members[number]
        except KeyError:
            raise ServerError(
                f"the server sent {descriptor.name} {number}, which this client does not know; "
                "update kvcq-client"
            ) from None

    return member
