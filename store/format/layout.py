"""Offsets of record fields: the table at the top of record.py, as numbers.

All code that reads or packs single fields of a record takes their offsets from here. Hosts have two
sizes, so fields behind them are given for IPv4, or without the hosts.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Fields in order, with their `struct` codes: before the hosts, and after them.
FRONT = (
    ("record_size", "i"),
    ("magic", "i"),
    ("body_crc", "i"),
    ("queue_id", "i"),
    ("flag", "i"),
    ("queue_offset", "q"),
    ("physical_offset", "q"),
    ("sys_flag", "i"),
    ("born_time_ms", "q"),
)
BACK = (("reconsume_times", "i"), ("prepared_transaction_offset", "q"), ("body_length", "i"))
_HEADER = (*FRONT, ("born_host", "8s"), ("store_time_ms", "q"), ("store_host", "8s"), *BACK)

HOST_V4_BYTES = 8
HOST_V6_BYTES = 20
#: sys_flag bits.
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20
_V6 = BORN_HOST_V6 | STORE_HOST_V6


def packing(fields: Iterable[tuple[str, str]]) -> struct.Struct:
    """A Struct that packs these fields one after the other."""
    return struct.Struct(">" + "".join(code for _, code in fields))


def _places() -> dict[str, tuple[int, str]]:
    at = 0
    places = {}
    for name, code in _HEADER:
        places[name] = at, code
        at += struct.calcsize(f">{code}")
    return places


_PLACES = _places()
#: First byte of each field of a record whose hosts are IPv4.
AT = {name: at for name, (at, _) in _PLACES.items()}
PHYSICAL_OFFSET_AT = AT["physical_offset"]
#: The byte of sys_flag in which all its bits are.
SYS_FLAG_BYTE_AT = AT["sys_flag"] + 3
#: The hosts begin there.
HOSTS_AT = AT["born_host"]
STORE_TIME_BYTES = struct.calcsize(">q")

# Positions after the hosts, minus the bytes of both.
_HOSTS_V4_BYTES = 2 * HOST_V4_BYTES
BACK_AT = AT["reconsume_times"] - _HOSTS_V4_BYTES
PREPARED_AT = AT["prepared_transaction_offset"] - _HOSTS_V4_BYTES
BODY_LENGTH_AT = AT["body_length"] - _HOSTS_V4_BYTES
BODY_AT = BODY_LENGTH_AT + struct.calcsize(">i")

#: Bytes of both hosts, by their bits of sys_flag.
_HOSTS_BYTES = {
    bits: sum(
        HOST_V6_BYTES if bits & bit else HOST_V4_BYTES for bit in (BORN_HOST_V6, STORE_HOST_V6)
    )
    for bits in (0, BORN_HOST_V6, STORE_HOST_V6, _V6)
}


def hosts_bytes(sys_flag: int) -> int:
    """Bytes of both hosts."""
    return _HOSTS_BYTES[sys_flag & _V6]


def born_host_bytes(sys_flag: int) -> int:
    return HOST_V6_BYTES if sys_flag & BORN_HOST_V6 else HOST_V4_BYTES


def picking(*names: str) -> struct.Struct:
    """A Struct that unpacks these fields, in record order, from the first byte of a record with
    IPv4 hosts. Fields before the hosts work for any record."""
    form, end = ">", 0
    for at, code in map(_PLACES.__getitem__, names):
        form += f"{at - end}x{code}" if at > end else code
        end = at + struct.calcsize(f">{code}")
    return struct.Struct(form)
