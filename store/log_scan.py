"""Read a whole log from its files, in order, without changing anything: for tools and repairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from store.record import Found, check_record, dispatch_request
from store.resync import goes_on_behind
from store.sealed_run import SealedParser

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from store.consume_queue import DispatchRequest
    from store.segment_set import SegmentSet

_RUN = 4096


class ScannedRun(NamedTuple):
    """Consecutive records, and where the log goes on behind them."""

    requests: list[DispatchRequest]
    next_offset: int


class Damage(NamedTuple):
    """Bytes of the log that are no record, with whole records behind them."""

    physical_offset: int
    goes_on_at: int  # physical offset of the next whole record
    reason: str


def scan_requests(
    segments: SegmentSet, start: int, on_damage: Callable[[Damage], None]
) -> Iterator[ScannedRun]:
    """What is derived from each record from `start` on, a record's beginning, to the log's end.

    Damage with whole records behind it is told to `on_damage`, and the scan goes on there; the
    first position behind which there are none is the end. Runs hold 4096 records at most; the
    last `next_offset` is the end. Raises CorruptRecordError for a whole record that is not UTF-8.
    """
    at = start
    parser = SealedParser()
    while (segment := segments.find(at)) is not None:
        size = segment.appended  # all of the file, until recovery has cut it
        view = segment.view(0, size)
        try:
            base, end = segment.start_offset, segment.start_offset + size
            if at == end:
                return
            while at < end:
                requests, at = parser.parse(view, base, at, end, _RUN)
                if len(requests) < _RUN:
                    checked = check_record(view, at - base, size, at)
                    if checked.found is Found.RECORD:
                        requests.append(dispatch_request(view, at - base))
                        at += checked.size
                    elif checked.found is Found.BLANK:
                        at = base + segment.size
                    elif not requests:
                        behind = goes_on_behind(segments, at)
                        if behind is None:
                            return
                        on_damage(Damage(at, behind, checked.reason))
                        at = behind
                        if not base <= at < end:
                            break
                        continue
                yield ScannedRun(requests, at)
        finally:
            view.release()
