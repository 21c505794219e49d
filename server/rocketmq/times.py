"""Converts protobuf times to milliseconds and back. Accepts every value, unlike protobuf's own
functions: invalid times are rejected later, with the name of their field."""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

_Time = TypeVar("_Time", Duration, Timestamp)


def milliseconds_of(time: Duration | Timestamp) -> int:
    """A duration in ms, or a timestamp in ms since 1970."""
    return time.seconds * 1000 + time.nanos // 1_000_000


def _of(kind: type[_Time], milliseconds: int) -> _Time:
    seconds, rest = divmod(milliseconds, 1000)
    return kind(seconds=seconds, nanos=rest * 1_000_000)


def timestamp_of(milliseconds: int) -> Timestamp:
    """The timestamp `milliseconds` after 1970."""
    return _of(Timestamp, milliseconds)


def duration_of(milliseconds: int) -> Duration:
    return _of(Duration, milliseconds)
