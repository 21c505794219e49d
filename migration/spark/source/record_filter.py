"""Selects records by topic, queue, time and position, from options or Spark's filters.

Spark applies its filters again, so the source may return too many records, but never too few.
Unsupported filters are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from migration.spark.errors import SourceOptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from migration.columnar import Bools, Ints, RecordBlock
    from migration.spark.source.options import Options

_NO_LIMIT = (1 << 63) - 1
_T = TypeVar("_T")


@dataclass(frozen=True)
class Span:
    """low <= value <= high."""

    low: int = -_NO_LIMIT
    high: int = _NO_LIMIT

    def __and__(self, other: Span) -> Span:
        return Span(max(self.low, other.low), min(self.high, other.high))

    @property
    def is_limited(self) -> bool:
        return self != Span()

    def holds(self, numbers: Ints) -> Bools:
        return (numbers >= self.low) & (numbers <= self.high)


@dataclass(frozen=True)
class RecordFilter:
    """Conditions on records; None means any."""

    topics: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    store_time_ms: Span = Span()
    physical_offset: Span = Span()

    def __and__(self, other: RecordFilter) -> RecordFilter:
        return RecordFilter(
            _meet(self.topics, other.topics),
            _meet(self.queue_ids, other.queue_ids),
            self.store_time_ms & other.store_time_ms,
            self.physical_offset & other.physical_offset,
        )

    def choose(self, block: RecordBlock) -> RecordBlock:
        """The records of the block that match. Checks cheap conditions first."""
        if self == RecordFilter() or not len(block):
            return block
        if self.physical_offset.is_limited:
            block = block.where(self.physical_offset.holds(block.physical_offset))
        if self.queue_ids is not None:
            block = block.where(np.isin(block.queue_id, list(self.queue_ids)))
        if self.store_time_ms.is_limited:
            block = block.where(self.store_time_ms.holds(block.store_time_ms))
        if self.topics is not None:
            block = block.where(block.topic_names.look_up(self.topics.__contains__, np.bool_))
        return block


def filter_from_options(options: Options) -> RecordFilter:
    """The filter that the options describe. Raises SourceOptionError."""
    topics = options.maybe_text("topic")
    ids = options.maybe_text("queueId")
    if ids is not None and not all(part.strip().isdecimal() for part in ids.split(",")):
        raise SourceOptionError("queueId", f"{ids!r} is not a list of queue ids")
    return RecordFilter(
        frozenset(part.strip() for part in topics.split(",")) if topics else None,
        frozenset(int(part) for part in ids.split(",")) if ids else None,
        Span(
            options.whole("minStoreTimeMs", -_NO_LIMIT), options.whole("maxStoreTimeMs", _NO_LIMIT)
        ),
        Span(
            options.whole("minPhysicalOffset", -_NO_LIMIT),
            options.whole("maxPhysicalOffset", _NO_LIMIT),
        ),
    )


def from_spark(filters: Iterable[Filter]) -> RecordFilter:
    """The conjunction of all supported filters."""
    result = RecordFilter()
    for one in filters:
        match getattr(one, "attribute", None):
            case ("topic",):
                result &= RecordFilter(topics=_values(one, str))
            case ("queue_id",):
                result &= RecordFilter(queue_ids=_values(one, int))
            case ("store_time_ms",):
                result &= RecordFilter(store_time_ms=_span(one))
            case ("physical_offset",):
                result &= RecordFilter(physical_offset=_span(one))
    return result


def _meet(one: frozenset[_T] | None, other: frozenset[_T] | None) -> frozenset[_T] | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _values(one: Filter, kind: type) -> frozenset[Any] | None:
    if isinstance(one, EqualTo) and isinstance(one.value, kind):
        return frozenset([one.value])
    if isinstance(one, In):
        return frozenset(value for value in one.value if isinstance(value, kind))
    return None


def _span(one: Filter) -> Span:
    value = getattr(one, "value", None)
    if isinstance(one, In):
        numbers = [number for number in one.value if isinstance(number, int)]
        return Span(min(numbers), max(numbers)) if numbers else Span(1, 0)
    if type(one) not in _SPANS or not isinstance(value, int):
        return Span()
    return _SPANS[type(one)](value)


_SPANS: dict[type, Callable[[int], Span]] = {
    EqualTo: lambda value: Span(value, value),
    GreaterThan: lambda value: Span(low=value + 1),
    GreaterThanOrEqual: lambda value: Span(low=value),
    LessThan: lambda value: Span(high=value - 1),
    LessThanOrEqual: lambda value: Span(high=value),
}
