"""Reads the log of an open store again, to fill or verify a side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.errors import CorruptRecordError
from store.format import FastParser
from store.log import Damage, Run, walk

if TYPE_CHECKING:
    from store.consume_queue import DispatchRequest
    from store.message_store import MessageStore
    from store.topics import Admission


class LogFeed:
    """Reads runs of records as dispatch requests, as live dispatch builds them.

    Not thread-safe. Memory: that of a parser.
    """

    def __init__(self, store: MessageStore, admission: Admission | None = None) -> None:
        """`admission`: which records are live; by default the store's. Callers that handle
        deletions of light queues themselves pass their own."""
        self._store = store
        self._admission = admission or store.admission
        self._parser = FastParser()

    def read(self, at: int, end: int, count: int) -> tuple[list[DispatchRequest], int]:
        """Requests of the next live records in at..end, at most `count`, and the position to
        continue at, which is above `at` unless `at` is `end`.

        Skips parts that were dropped from the log. Raises CorruptRecordError for a damaged record,
        unless the store leaves those out.
        """
        for step in walk(self._store.log.segments, at, end=end, parser=self._parser, count=count):
            at = step.next_offset
            match step:
                case Run():
                    return self._admission.admit_all(step.requests), at
                case Damage() if not self._store.config.skip_damaged_records:
                    raise CorruptRecordError(step.physical_offset, step.reason)
        return [], at
