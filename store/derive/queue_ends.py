"""Queues whose last message leaves the log keep their end offset, also when `kvcq/` is lost.

What is derived from the log can be rebuilt from it, but for one thing: where a queue ends whose
messages are all gone from it. So before segments are removed, the last units of the queues that
lose their last record with them are put into the metadata, durably; a rebuild begins with them.

Order of a removal: kvcq/ is durable beyond the segments (retention sees to that), last units are
put and synced, the log is flushed, then the segments go. A crash before they went leaves rows of
records that are still in the log: rows at or above its start are passed over, since the replay
knows better. A queue that goes on leaves its row behind: the replay of its later records overtakes
it. For that they must be durable. A queue whose last message was not in the segments gets no row,
and would begin anew if a power loss took that message: hence the flush, which is of all that was
appended by the time of the look. So rows are never wrong, need no care, and are at most one for
each queue; a deleted topic takes its rows along.

On a full disk the metadata takes nothing. The ends are then noted in a file that has its blocks
(ends_reserve.py), the segments go, and what is in the file is put into the metadata when there is
room again.

Queues may have ended before anything kept their ends: in a store that RocketMQ wrote, or that is of
an older release. Their last units are put into the metadata on the first opening that finds a log
which does not begin at 0.

It costs one pass over the bounds of all queues for each run of retention that removes anything, on
its thread, and a row for each queue that ends there; nothing in memory, and nothing for an append.
Looking at the records of the segments instead would read all of them from the disk, cold. A copy of
the whole table at each removal would write rows of all queues instead of those few; hard links to
its files would cost nothing, but share the damage that a rebuild is for.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from store.base import retry_while_busy
from store.errors import DiskFullError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store.consume_queue import ConsumeQueueStore, LastUnit
    from store.derive.ends_reserve import EndsReserve
    from store.metadata import Metadata
    from store.topics import Topics

#: A named value: the ends from before anything kept them are in the metadata.
_STATE = "ends_kept"
#: A named value: where the log begins, i64, noted before the segments below are removed.
LOG_START = "log_start"

logger = logging.getLogger(__name__)


def noted_log_start(metadata: Metadata, reserve: EndsReserve) -> int | None:
    """Where the log begins at the latest, if no file was lost; None in a store of an older release.

    It may begin earlier: a crash comes between the note and the removal.
    """
    noted = metadata.get_state(LOG_START)
    starts = [reserve.log_start, None if noted is None else int.from_bytes(noted, "big")]
    return max((start for start in starts if start is not None), default=None)


class QueueEnds:
    """Keeps and restores them, and notes where the log begins.

    Thread: retention's for `keep` and `settle`, the opening one before it starts.
    """

    def __init__(
        self,
        queues: ConsumeQueueStore,
        metadata: Metadata,
        topics: Topics,
        reserve: EndsReserve,
    ) -> None:
        # Constant after construction.
        self._queues = queues
        self._metadata = metadata
        self._topics = topics
        self._reserve = reserve

    def keep(self, start: int, end: int) -> None:
        """Before the log's start goes from `start` to `end`: all below `end` is dispatched.

        Raises StoreBusyError after half a minute of stalls, DiskFullError when not even the room
        that is kept for that is enough: the segments must stay then.
        Durability: on return the ends of these queues survive the loss of the derived data. Those
        of queues that go on behind `end` do once the log is flushed, which the caller does next.
        """
        try:
            self._keep(self._queues.last_units_between(start, end))
            self._note_start(end)
        except DiskFullError:
            if not self._reserve.add(end, self._queues.last_units_between(start, end)):
                raise

    def settle(self) -> None:
        """Put into the metadata what a full disk kept out of it, and keep room for the next time.

        A disk that is full still has it done by a later call. Raises as `keep` does otherwise.
        """
        with suppress(DiskFullError):
            if self._reserve.log_start is not None:
                # Queues may have been deleted since, or have gone on.
                self._keep(map(self._still_there, self._reserve.pages()))
                self._note_start(noted_log_start(self._metadata, self._reserve) or 0)
                self._reserve.clear()
            self._reserve.prepare()

    def _keep(self, pages: Iterator[list[LastUnit]]) -> None:
        while True:
            with self._topics.deletions.none_meanwhile() as deletions:
                pass
            page = next(pages, None)
            if page is None:
                break
            # Otherwise rows of a topic might come back that was deleted since the look.
            with self._topics.deletions.none_meanwhile() as now:
                if now != deletions:
                    page = self._still_there(page)
                retry_while_busy(partial(self._metadata.put_last_units, page))
        self._metadata.sync()

    def _note_start(self, log_start: int) -> None:
        self._metadata.put_state(LOG_START, log_start.to_bytes(8, "big"))

    def look_at_start(self, log_start: int) -> None:
        """On opening: say so when the log begins later than any removal of segments left it."""
        noted = noted_log_start(self._metadata, self._reserve)
        if noted is None:
            self._note_start(log_start)
        elif noted < log_start:
            logger.error(
                "the log begins at %d, but nothing below %d was removed by this program: the "
                "segments between are missing, and their messages count as expired. Bring them "
                "back from a copy while the store is stopped",
                log_start,
                noted,
            )

    def keep_earlier(self, log_start: int) -> None:
        """On opening, once in a store's life: ends of queues below the start of the log.

        Raises StoreBusyError after half a minute of stalls. Durable on return.
        """
        if log_start > 0 and self._metadata.get_state(_STATE) is None:
            self._keep(self._queues.last_units_between(0, log_start))
            self._metadata.put_state(_STATE, b"")

    def restore(self, log_start: int) -> int:
        """Queues of which the log has nothing go on where they ended; returns how many.

        For queues that know less than the log: before it is replayed. Durable with the replay.
        """
        count = 0
        for page in chain(self._metadata.last_units(), self._reserve.pages()):
            gone = [
                unit
                for unit in page
                if unit.physical_offset < log_start
                and self._topics.admission.is_live(unit.topic, unit.physical_offset)
            ]
            retry_while_busy(partial(self._queues.restore_last_units, gone))
            count += len(gone)
        if count:
            logger.info("%d queues without a message in the log go on where they ended", count)
        return count

    def _still_there(self, page: list[LastUnit]) -> list[LastUnit]:
        ends = self._queues.next_offsets([(unit.topic, unit.queue_id) for unit in page])
        is_live = self._topics.admission.is_live
        return [
            unit
            for unit, end in zip(page, ends, strict=True)
            if end == unit.queue_offset + 1 and is_live(unit.topic, unit.physical_offset)
        ]
