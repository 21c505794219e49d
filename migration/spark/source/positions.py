"""Where to begin and end in each queue, in the form of Spark's Kafka source.

Offsets are JSON: `{"orders": {"0": 23, "1": -2}}`; -2 is the earliest offset, -1 the latest. It
must name exactly the queues that are read. Times too: `{"orders": {"0": 1700000000000}}`, ms since
1970; startingTimestamp and endingTimestamp are one time for all queues. A start later than all
messages is an error, unless startingOffsetsByTimestampStrategy is latest; such an end is the latest
offset.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from kvcq_client import Boundary, Queue
from migration.spark.errors import SourceOptionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Set

    from kvcq_client import Bounds, Client
    from migration.spark.source.options import Options

EARLIEST = -2
LATEST = -1


class Positions(NamedTuple):
    """The start or the end. At most one of the first three is set; none means the default."""

    option: str  # the option that set it
    default: int  # EARLIEST or LATEST: for queues that are not named
    offsets: dict[Queue, int] | None = None
    times: dict[Queue, int] | None = None
    time_ms: int | None = None
    late_is_latest: bool = True

    @property
    def is_earliest(self) -> bool:
        """Whether every queue begins at its first message."""
        others = (self.offsets, self.times, self.time_ms)
        return self.default == EARLIEST and others == (None, None, None)

    def resolve(
        self, client: Client, queues: list[Queue], bounds: Mapping[Queue, Bounds]
    ) -> dict[Queue, int]:
        """An offset for each queue.

        Raises SourceOptionError if a time finds no message, or other queues were named.
        """
        named = self.offsets if self.times is None else self.times
        if named is not None:
            self._check_names(named.keys(), set(queues))
        found = {}
        for queue in queues:
            low, high = bounds[queue]
            time_ms = self.time_ms if self.times is None else self.times.get(queue)
            if time_ms is not None:
                found[queue] = self._by_time(client, queue, time_ms, high)
                continue
            offset = self.default if self.offsets is None else self.offsets.get(queue, self.default)
            found[queue] = {EARLIEST: low, LATEST: high}.get(offset, offset)
        return found

    def _check_names(self, named: Set[Queue], queues: set[Queue]) -> None:
        for found, what in (
            (named - queues, "names {}, which is not read"),
            (queues - named, "does not name {}: -2 is its earliest offset, -1 its latest"),
        ):
            if found:
                first = min(found)
                where = f"queue {first.queue_id} of {first.topic!r}"
                more = f" and {len(found) - 1} more" if len(found) > 1 else ""
                raise SourceOptionError(self.option, what.format(where + more))

    def _by_time(self, client: Client, queue: Queue, time_ms: int, high: int) -> int:
        offset = client.search_time(queue.topic, queue.queue_id, time_ms, Boundary.LOWER)
        if offset >= high and not self.late_is_latest:
            raise SourceOptionError(
                self.option,
                f"queue {queue.queue_id} of {queue.topic!r} has no message at or after {time_ms}",
            )
        return offset


def starting(options: Options, default: str) -> Positions:
    """From startingTimestamp, startingOffsetsByTimestamp or startingOffsets, in this order."""
    strategy = options.choice("startingOffsetsByTimestampStrategy", "error", ("error", "latest"))
    return _positions(options, "starting", default)._replace(late_is_latest=strategy == "latest")


def ending(options: Options) -> Positions:
    """From endingTimestamp, endingOffsetsByTimestamp or endingOffsets, in this order."""
    positions = _positions(options, "ending", "latest")
    if EARLIEST in (positions.default, *(positions.offsets or {}).values()):
        raise SourceOptionError("endingOffsets", "cannot be the earliest offset")
    return positions


def _positions(options: Options, side: str, default: str) -> Positions:
    named = {"earliest": EARLIEST, "latest": LATEST}
    fallback = named[default]
    at, by_time, offsets = (side + end for end in ("Timestamp", "OffsetsByTimestamp", "Offsets"))
    time_ms, times, text = (
        options.maybe_whole(at),
        options.maybe_text(by_time),
        options.text(offsets, default),
    )
    if time_ms is not None:
        return Positions(at, fallback, time_ms=time_ms)
    if times is not None:
        return Positions(by_time, fallback, times=parse(by_time, times, 0))
    if text in named:
        return Positions(offsets, named[text])
    return Positions(offsets, fallback, offsets=parse(offsets, text, EARLIEST))


def parse_assigned(text: str) -> tuple[Queue, ...]:
    """Queues from JSON, `{"orders": [0, 1]}`. Raises SourceOptionError."""
    try:
        found = [
            Queue(topic, int(number)) for topic, ids in json.loads(text).items() for number in ids
        ]
    except (ValueError, AttributeError, TypeError):
        raise SourceOptionError("assign", f'{text!r} is not like {{"topic": [0, 1]}}') from None
    return tuple(dict.fromkeys(found))


def by_queue(document: Any) -> dict[Queue, Any]:  # noqa: ANN401 - as JSON has it
    """Values by queue, from values by topic and queue id."""
    return {
        Queue(topic, int(queue_id)): value
        for topic, queues in document.items()
        for queue_id, value in queues.items()
    }


def parse(option: str, text: str, least: int) -> dict[Queue, int]:
    """Numbers of `least` or more by queue, from JSON. Raises SourceOptionError."""
    try:
        found = by_queue(json.loads(text))
    except (ValueError, AttributeError):
        raise SourceOptionError(option, f'{text!r} is not like {{"topic": {{"0": 1}}}}') from None
    for number in found.values():
        if not isinstance(number, int) or number < least:
            raise SourceOptionError(option, f"{number!r} is not a number of {least} or more")
    return found
