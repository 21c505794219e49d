"""Read a whole log from its files, in order, without changing anything: for tools and repairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from store.record import Found, check_record, dispatch_request
from store.sealed_run import parse_sealed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store.consume_queue import DispatchRequest
    from store.segment_set import SegmentSet

_RUN = 4096


class ScannedRun(NamedTuple):
    """Consecutive records, and where the log goes on behind them."""

    requests: list[DispatchRequest]
    next_offset: int


def scan_requests(segments: SegmentSet, start: int) -> Iterator[ScannedRun]:
    """What is derived from each record from `start` on, a record's beginning, to the log's end.

    Ends at the first position that holds no whole record. Runs hold 4096 records at most; the
    last `next_offset` is the end. Raises CorruptRecordError for a whole record that is not UTF-8.
    """
    at = start
    names: dict[bytes, str] = {}
    while (segment := segments.find(at)) is not None:
        view = segment.view(0, segment.size)
        try:
            base, end = segment.start_offset, segment.start_offset + segment.size
            while at < end:
                requests, at = parse_sealed(view, base, at, end, _RUN, names)
                if len(requests) < _RUN:
                    checked = check_record(view, at - base, segment.size, at)
                    if checked.found is Found.RECORD:
                        requests.append(dispatch_request(view, at - base))
                        at += checked.size
                    elif checked.found is Found.BLANK:
                        at = end
                    elif not requests:
                        return
                yield ScannedRun(requests, at)
        finally:
            view.release()
