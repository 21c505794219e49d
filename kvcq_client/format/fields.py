"""Fields of protobuf that are written by hand: what protobuf copies thrice is joined once.

A message is its fields, in any order; so one that protobuf encoded may be followed by more of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.protobuf.message import Message


def varint(value: int) -> bytes:
    """Base 128, low bits first, as protobuf has it. Not for negative numbers."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def length_delimited(message: type[Message], field: str) -> bytes:
    """What stands before the length of such a field."""
    return varint(message.DESCRIPTOR.fields_by_name[field].number << 3 | 2)
