"""Entries about halves. A half is a message whose transaction is open.

A half is named by the first queue offset of its record in HALVES_TOPIC, so it keeps its name when
the record is appended again. Fields of the entries, big-endian, behind their kind:

| kind | entry           | fields                                                             |
|-----:|-----------------|--------------------------------------------------------------------|
|   48 | HalfBegun       | u16 group, u16 topic, i64 half, i64 nonce, i64 begun ms, i64 check |
|   49 | HalfEnded       | i64 half, i64 ended ms, u8 how                                     |
|   50 | HalfChecked     | i64 half, i32 checks, i64 next check ms                            |
|   51 | HalfMoved       | i64 half, i64 place                                                |
|   52 | HalvesForgotten | i64 below                                                          |

`how`: 1 committed, 2 rolled back, 3 its topic is gone, 4 its record is gone, 5 handed back.
"""

from __future__ import annotations

import enum
import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

#: The records of halves are in queue 0 of this topic.
HALVES_TOPIC = "rmq_sys_kvcq_halves"
#: Time of the next check of a half that is no longer checked, ms.
NEVER = (1 << 63) - 1

_BEGUN = struct.Struct(">BHHqqqq")
_ENDED = struct.Struct(">BqqB")
_CHECKED = struct.Struct(">Bqiq")
_MOVED = struct.Struct(">Bqq")
_FORGOTTEN = struct.Struct(">Bq")


class HalfEnd(enum.IntEnum):
    """What became of a half."""

    COMMITTED = 1  # the same append puts the message to its topic
    ROLLED_BACK = 2
    TOPIC_GONE = 3  # the topic was deleted before the commit
    RECORD_GONE = 4  # lost with its segment, for lack of space
    HANDED_BACK = 5  # the same append has it as a half of another program


class HalfBegun(NamedTuple):
    """A transaction begins: the append of this record includes its message."""

    group: str  # of producers; any member may decide
    topic: str  # where a commit puts the message
    half: int  # queue offset of its record
    nonce: int
    begun_ms: int
    check_ms: int  # time of the first check, ms since 1970


class HalfEnded(NamedTuple):
    """The transaction is decided."""

    half: int
    ended_ms: int
    how: HalfEnd


class HalfChecked(NamedTuple):
    """A producer was asked about the half. If the next check is NEVER, the half is given up."""

    half: int
    checks: int  # including this one
    check_ms: int  # time of the next check, ms since 1970; or NEVER


class HalfMoved(NamedTuple):
    """The append of this record includes the half at its new place."""

    half: int
    place: int  # queue offset


class HalvesForgotten(NamedTuple):
    """The outcomes of halves with names below `below` are forgotten."""

    below: int


HalfEntry = HalfBegun | HalfEnded | HalfChecked | HalfMoved | HalvesForgotten


# --- as bytes ------------------------------------------------------------------------------


def pack_half_entry(entry: HalfEntry, place: Callable[[str], int]) -> bytes:
    """Encode the entry. `place` returns the index of a name in the record."""
    match entry:
        case HalfBegun(group, topic):
            return _BEGUN.pack(48, place(group), place(topic), *entry[2:])
        case HalfEnded():
            return _ENDED.pack(49, *entry)
        case HalfChecked():
            return _CHECKED.pack(50, *entry)
        case HalfMoved():
            return _MOVED.pack(51, *entry)
        case HalvesForgotten():
            return _FORGOTTEN.pack(52, *entry)


def _begun(body: bytes, at: int, names: list[str]) -> tuple[HalfEntry, int]:
    _, group, topic, *rest = _BEGUN.unpack_from(body, at)
    return HalfBegun(names[group], names[topic], *rest), at + _BEGUN.size


def _ended(body: bytes, at: int, _: list[str]) -> tuple[HalfEntry, int]:
    _, half, ended_ms, how = _ENDED.unpack_from(body, at)
    return HalfEnded(half, ended_ms, HalfEnd(how)), at + _ENDED.size


def _checked(body: bytes, at: int, _: list[str]) -> tuple[HalfEntry, int]:
    return HalfChecked(*_CHECKED.unpack_from(body, at)[1:]), at + _CHECKED.size


def _moved(body: bytes, at: int, _: list[str]) -> tuple[HalfEntry, int]:
    return HalfMoved(*_MOVED.unpack_from(body, at)[1:]), at + _MOVED.size


def _forgotten(body: bytes, at: int, _: list[str]) -> tuple[HalfEntry, int]:
    return HalvesForgotten(*_FORGOTTEN.unpack_from(body, at)[1:]), at + _FORGOTTEN.size


#: By kind: a function that decodes the entry at an index, and returns the index behind it.
HALF_READERS: dict[int, Callable[[bytes, int, list[str]], tuple[HalfEntry, int]]] = {
    48: _begun,
    49: _ended,
    50: _checked,
    51: _moved,
    52: _forgotten,
}
