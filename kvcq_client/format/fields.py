"""Encodes protobuf fields by hand, which avoids protobuf's copies of large ones.

A message is a sequence of fields in any order, so fields may be appended to an encoded message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.protobuf.message import Message


def varint(value: int) -> bytes:
    """A protobuf varint of a number that is not negative."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def length_delimited(message: type[Message], field: str) -> bytes:
    """The tag of a length-delimited field, which precedes its length."""
    return varint(message.DESCRIPTOR.fields_by_name[field].number << 3 | 2)
