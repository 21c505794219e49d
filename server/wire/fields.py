"""Validates request fields, and fills in defaults.

Errors name the field as in the request, such as `queues[3].queue_id`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from store.consume_queue import Boundary
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence, Sized

MAX_PULL_MESSAGES = 10_000
MAX_QUERY_MESSAGES = 1_000
MAX_PAGE_SIZE = 10_000
MAX_QUEUES = 10_000  # in one request
#: Handles that a receive may acknowledge: the longest ones, and a filter of 30 KiB, fit a request
#: of the size limit for requests that only name things.
MAX_ACKNOWLEDGED = 256

#: Maximum bytes of records in one response, whatever was requested; the rest is another page. One
#: message always fits. A decoded page is about three times as large while it is built.
PAGE_BYTES = 8 << 20

DEFAULT_PULL_MESSAGES = 32
DEFAULT_PULL_BYTES = 4 << 20
DEFAULT_QUERY_MESSAGES = 32
DEFAULT_PAGE_SIZE = 1_000


def bounded(field: str, value: int, default: int, limit: int) -> int:
    """`value`, or `default` for 0. Raises InvalidArgumentError outside 0..limit."""
    if value == 0:
        return min(default, limit)
    if not 0 < value <= limit:
        raise InvalidArgumentError(field, f"{value} is not from 0 (the default) to {limit}")
    return value


def page_size_of(value: int) -> int:
    """Rows in one page. Raises InvalidArgumentError."""
    return bounded("page_size", value, DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)


def not_more(field: str, values: Sized, limit: int, what: str) -> None:
    """Raises InvalidArgumentError if there are more values than `limit`."""
    if len(values) > limit:
        raise InvalidArgumentError(field, f"{len(values)} {what}, more than {limit}")


def in_range(field: str, value: int, low: int, high: int) -> int:
    """Return `value`. Raises InvalidArgumentError outside low..high, both inclusive."""
    if not low <= value <= high:
        raise InvalidArgumentError(field, f"{value} is not from {low} to {high}")
    return value


def not_negative(field: str, value: int) -> int:
    if value < 0:
        raise InvalidArgumentError(field, f"{value} is below 0")
    return value


def form_of(value: pb.RecordForm) -> pb.RecordForm:
    """The requested form; decoded by default."""
    if value == pb.RECORD_FORM_UNSPECIFIED:
        return pb.RECORD_FORM_DECODED
    if value not in (pb.RECORD_FORM_DECODED, pb.RECORD_FORM_WHOLE):
        raise InvalidArgumentError("form", f"{value} is not a RecordForm")
    return value


def boundary_of(value: pb.TimeBoundary) -> Boundary:
    """The requested boundary; the lower one by default."""
    if value in (pb.TIME_BOUNDARY_UNSPECIFIED, pb.TIME_BOUNDARY_LOWER):
        return Boundary.LOWER
    if value == pb.TIME_BOUNDARY_UPPER:
        return Boundary.UPPER
    raise InvalidArgumentError("boundary", f"{value} is not a TimeBoundary")


def queues_of(queues: Sequence[pb.Queue], field: str = "queues") -> list[tuple[str, int]]:
    """Topic and queue id of each. Raises InvalidArgumentError if there are too many."""
    not_more(field, queues, MAX_QUEUES, "queues")
    return [
        (queue.topic, not_negative(f"{field}[{index}].queue_id", queue.queue_id))
        for index, queue in enumerate(queues)
    ]
