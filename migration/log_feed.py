"""The log of an open store, for those who read it again: fillers of a side and the verifier."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from store.errors import CorruptRecordError
from store.record import Found, check_record, dispatch_request
from store.sealed_run import SealedParser

if TYPE_CHECKING:
    from store.consume_queue import DispatchRequest
    from store.message_store import MessageStore

logger = logging.getLogger(__name__)


class LogFeed:
    """Reads runs of records as dispatch requests, as live dispatch made them.

    Not for use by two threads at a time. Memory: that of a parser.
    """

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._log = store.log
        self._parser = SealedParser()

    @property
    def start_offset(self) -> int:
        return self._log.start_offset

    @property
    def appended_offset(self) -> int:
        return self._log.appended_offset

    def read(self, at: int, end: int, count: int) -> tuple[list[DispatchRequest], int]:
        """Requests of about `count` records in at..end, of topics that exist; and where to go on.

        Always gets further than `at`, unless that is `end`. What was dropped below the log's start
        is passed over. Raises CorruptRecordError.
        """
        at = max(at, self._log.start_offset)
        requests: list[DispatchRequest] = []
        view = self._log.view(at, end)
        try:
            base, stop = at, at + len(view)
            while at < stop and len(requests) < count:
                run, at = self._parser.parse(view, base, at, stop, count - len(requests))
                self._admit(run, requests)
                if at >= stop or len(requests) >= count:
                    break
                checked = check_record(view, at - base, stop - base, at)
                if checked.found is Found.BLANK:
                    at = self._log.segment_end(at)
                    break
                if checked.found is Found.NOTHING:
                    raise CorruptRecordError(at, checked.reason)
                request = whole_request(view, at - base)
                if request is not None and (admitted := self._store.admit(request)) is not None:
                    requests.append(admitted)
                at += checked.size
        finally:
            view.release()
        return requests, at

    def _admit(self, run: list[DispatchRequest], admitted: list[DispatchRequest]) -> None:
        admit = self._store.admit
        lives = ""  # names are the same object while they repeat
        for request in run:
            if request[0] is lives and not request[8]:
                admitted.append(request)
            elif (found := admit(request)) is not None:
                if found[0] is request[0]:  # else only its light queues live
                    lives = request[0]
                admitted.append(found)


def whole_request(view: memoryview | bytes, position: int) -> DispatchRequest | None:
    """The request of any whole record; None for one that no queue can hold."""
    try:
        request = dispatch_request(view, position)
    except CorruptRecordError:
        return None
    return request if request.queue_id >= 0 and request.queue_offset >= 0 else None
