"""Where to begin and end in each queue, said the way Spark's Kafka source has it said.

JSON names topics, and in them queues: `{"orders": {"0": 23, "1": -2}}`; -2 is the earliest offset,
-1 the latest. By time: `{"orders": {"0": 1700000000000}}`, ms since 1970. One time for all queues
is startingTimestamp or endingTimestamp. A time later than every message is an error, unless
startingOffsetsByTimestampStrategy is latest; for the end it means the latest offset.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from kvcq_client import Boundary, Queue
from migration.spark.errors import SourceOptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvcq_client import Bounds, Client
    from migration.spark.source_options import Options

EARLIEST = -2
LATEST = -1


class Positions(NamedTuple):
    """One side, the start or the end. At most one of the three is set; none is the default."""

    default: int  # EARLIEST or LATEST: for queues that nothing else names
    offsets: dict[Queue, int] | None = None
    times: dict[Queue, int] | None = None
    time_ms: int | None = None
    late_is_latest: bool = True

    def resolve(
        self, client: Client, queues: list[Queue], bounds: Mapping[Queue, Bounds]
    ) -> dict[Queue, int]:
        """An offset for each queue. Raises SourceOptionError when a time finds no message."""
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

    def _by_time(self, client: Client, queue: Queue, time_ms: int, high: int) -> int:
        offset = client.search_time(queue.topic, queue.queue_id, time_ms, Boundary.LOWER)
        if offset >= high and not self.late_is_latest:
            raise SourceOptionError(
                "startingTimestamp",
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
    time_ms = options.maybe_whole(f"{side}Timestamp")
    if time_ms is not None:
        return Positions(named[default], time_ms=time_ms)
    by_time = options.maybe_text(f"{side}OffsetsByTimestamp")
    if by_time is not None:
        return Positions(named[default], times=parse(f"{side}OffsetsByTimestamp", by_time, 0))
    text = options.text(f"{side}Offsets", default)
    if text in named:
        return Positions(named[text])
    return Positions(named[default], offsets=parse(f"{side}Offsets", text, EARLIEST))


def parse(option: str, text: str, least: int) -> dict[Queue, int]:
    """Numbers of `least` or more by queue, from JSON. Raises SourceOptionError."""
    try:
        document: Any = json.loads(text)
        found = {
            Queue(topic, int(queue_id)): number
            for topic, queues in document.items()
            for queue_id, number in queues.items()
        }
    except (ValueError, AttributeError):
        raise SourceOptionError(option, f'{text!r} is not like {{"topic": {{"0": 1}}}}') from None
    for number in found.values():
        if not isinstance(number, int) or number < least:
            raise SourceOptionError(option, f"{number!r} is no number of {least} or more")
    return found


def to_document(offsets: Mapping[Queue, int]) -> dict[str, dict[str, int]]:
    """Offsets in the form that `parse` takes."""
    document: dict[str, dict[str, int]] = {}
    for queue, offset in sorted(offsets.items()):
        document.setdefault(queue.topic, {})[str(queue.queue_id)] = offset
    return document


def from_document(document: Mapping[str, Mapping[str, int]]) -> dict[Queue, int]:
    """Inverse of to_document."""
    return {
        Queue(topic, int(queue_id)): offset
        for topic, queues in document.items()
        for queue_id, offset in queues.items()
    }
