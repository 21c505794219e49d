"""Entries about halves. A half is a message whose transaction is open.

A half is named by the first queue offset of its record in HALVES_TOPIC, so it keeps its name when
the record is appended again.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

#: The records of halves are in queue 0 of this topic.
HALVES_TOPIC = "rmq_sys_kvcq_halves"
#: Time of the next check of a half that is no longer checked, ms.
NEVER = (1 << 63) - 1


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
