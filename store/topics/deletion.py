"""How a topic, or a light queue, is deleted.

A name goes through these states. A crash before the mark undoes the deletion; after it, opening
finishes it:

| state    | meaning                                                  | kept in                   |
|----------|----------------------------------------------------------|---------------------------|
| draining | no append takes it; what was appended is dispatched      | memory: a crash ends it   |
| marked   | its topic is gone, its records below an offset are dead  | a mark in the metadata    |
| removed  | its rows are gone from the queues, appends may take it   | a number in the queues    |
| settled  | nothing can bring its records back: the mark is dropped  |                           |

Marks are numbered, and rows are removed in that order: the number in the queues tells which
are done. Opening removes the rows of the others before anything is dispatched.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Protocol

from store.base import Lock, retry_while_busy
from store.errors import TopicBusyError
from store.light_queue import is_light
from store.metadata import DeleteMark
from store.topics.admission import dead_below, dead_light_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from contextlib import AbstractContextManager

    from store.consume_queue import ConsumeQueueStore
    from store.log import CommitLog, Watermark
    from store.metadata import Metadata
    from store.topics.live_topics import LiveTopics


class Appends(Protocol):
    """What a deletion asks of the append path."""

    log: CommitLog
    dispatched: Watermark

    def held(self) -> AbstractContextManager[None]:
        """The append lock. Raises what an append raises when the store takes no writes."""
        ...

    def drain(self, end: int) -> None:
        """Everything below `end` is dispatched. Raises StoreBusyError when that takes too long."""
        ...


class Deletions:
    """The deletions of one store: those under way, and the marks of earlier ones.

    Thread: any. Memory: an entry for each mark. Of a light queue the mark stays while its records
    are in the log.
    Locks: `rewriting`, `committing`, `_numbering`, taken in this order; see docs/threads.md.
    """

    def __init__(self, metadata: Metadata, queues: ConsumeQueueStore, live: LiveTopics) -> None:
        # Constant after construction.
        self._metadata = metadata
        self._queues = queues
        self._live = live
        #: Held while rows are looked up in the log and written to queues: none of a topic that is
        #: removed meanwhile.
        self.rewriting = Lock()
        #: Held while offsets of a group are checked and stored, likewise.
        self.committing = Lock()
        self._numbering = Lock()
        # Names that are not removed yet. Added to under the append lock; read freely.
        # Each with the number of its mark, None before it has one.
        self._under_way: dict[str, int | None] = {}
        # Guarded by _numbering; `dead_light` read freely.
        marks = metadata.delete_marks()
        self._marks = {mark.sequence: mark for mark in marks}
        self._dead_light = dead_light_of(marks)
        self._last_sequence = max([queues.applied_deletions, *self._marks], default=0)

    @property
    def under_way(self) -> Collection[str]:
        """Names that no append may take. Changes; read it under the append lock."""
        return self._under_way

    @property
    def dead_light(self) -> Mapping[str, int]:
        """Deleted light queue -> physical offset below which its records are dead. Changes."""
        return self._dead_light

    def dead_below(self) -> dict[str, int]:
        """Of all names with a mark: the physical offset below which their records are dead."""
        return dead_below(self._marks.values())

    @contextmanager
    def none_meanwhile(self) -> Iterator[int]:
        """No topic's rows are removed meanwhile; gives the number of deletions until now."""
        with self._numbering:
            yield self._last_sequence

    # --- the states ------------------------------------------------------------------------

    def delete(self, name: str, queue_count: Callable[[str], int], appends: Appends) -> None:
        """The name is removed, durably.

        Raises TopicBusyError while it is being deleted, what `queue_count` raises for a name that
        does not exist, and what holding and draining raises: nothing of it is touched then.
        DiskFullError when there is no room for the mark, likewise.
        StoreBusyError, DiskFullError when rows cannot be removed now: they are with the next
        deletion, of this name or another, or on the next opening, and until then no append takes
        the name. The same goes for a deletion that Ctrl-C ended behind its mark.
        """
        if self._finish(name):
            return
        begun = False
        mark: DeleteMark | None = None
        try:
            with appends.held():
                if name in self._under_way:
                    raise TopicBusyError(name)
                queues = range(queue_count(name))
                begun = True
                self._under_way[name] = None
                appends.log.hot_queues.forget([name, *((name, queue_id) for queue_id in queues)])
                below = appends.log.appended_offset
            appends.drain(below)
            with self.rewriting, self.committing, self._numbering:
                mark = DeleteMark(name, below, self._last_sequence + 1)
                self._last_sequence = mark.sequence
                self._metadata.delete_topic(mark)
                self._marked(mark)
                self._remove_marked_and_end()
        except BaseException:
            if begun:
                self._came_to_nothing(name, mark, appends)
            raise

    def _came_to_nothing(self, name: str, mark: DeleteMark | None, appends: Appends) -> None:
        """Without a mark appends may take the name again; with one, once its rows are gone."""
        with self._numbering:
            if mark is not None and self._marks.get(mark.sequence) != mark:
                if mark in self._metadata.delete_marks():
                    self._marked(mark)  # though the call failed
                else:
                    mark = None
            if mark is not None:
                self._end_applied()
                return
        # Its offsets were forgotten: they can be loaded again once all of it is dispatched.
        end = appends.log.appended_offset
        appends.dispatched.call_when(end, lambda _error: self._end(name, None))

    def _finish(self, name: str) -> bool:
        """Whether a deletion of the name came to nothing behind its mark: its rows are removed."""
        if self._under_way.get(name) is None:
            return False
        with self.rewriting, self.committing, self._numbering:
            if self._under_way.get(name) is None:  # whoever was at it has ended it
                return False
            self._remove_marked_and_end()
            self._end_applied()
        return True

    def _end_applied(self) -> None:
        """Those whose rows are gone, where an interrupt came before their end."""
        applied = self._queues.applied_deletions
        for name, sequence in list(self._under_way.items()):
            if sequence is not None and sequence <= applied:
                self._end(name, sequence)

    def _marked(self, mark: DeleteMark) -> None:
        """The mark is in the metadata. Repeatable."""
        self._live.changed([mark.topic])
        if is_light(mark.topic):
            self._dead_light[mark.topic] = mark.below_offset
        # Last, and no call in between: a mark that is in `_marks` needs nothing more.
        self._under_way[mark.topic] = mark.sequence
        self._marks[mark.sequence] = mark

    def _remove_marked_and_end(self) -> None:
        """Earlier ones that met a stall come first: their numbers count as applied with later
        ones."""
        for applied in self._remove_marked():
            self._end(applied.topic, applied.sequence)

    def _remove_marked(self) -> Iterator[DeleteMark]:
        """Remove rows that the queues still have, by the order of the marks; each once it is done.

        One that meets a stall must not be left out.
        """
        for mark in self._missing():
            retry_while_busy(partial(self._queues.delete_topic, mark.topic, mark.sequence))
            yield mark

    def _missing(self) -> list[DeleteMark]:
        """Marks whose rows the queues may still have, by number."""
        applied = self._queues.applied_deletions
        missing = [mark for mark in self._marks.values() if mark.sequence > applied]
        return sorted(missing, key=lambda mark: mark.sequence)

    def _end(self, name: str, sequence: int | None) -> None:
        """Appends may take it: its rows are gone, or nothing of it was touched. That deletion alone
        ends: by now another one may be under way."""
        if self._under_way.get(name, -1) == sequence:
            self._under_way.pop(name, None)

    def settle(self, durable_sequence: int, log_start: int, checkpointed: int) -> None:
        """Drop the marks that cannot matter any more.

        `durable_sequence` is of the deletions that the queues cannot lose; `checkpointed` the
        flushed offset of the checkpoint: above it a mark is needed, see lost_topics.py. A light
        queue's mark stays while its records are in the log, since a rebuild would bring its units
        back.
        """
        with self._numbering:
            done = [
                mark
                for mark in self._marks.values()
                if mark.sequence <= durable_sequence
                and mark.below_offset <= checkpointed
                and (not is_light(mark.topic) or mark.below_offset <= log_start)
            ]
            self._metadata.drop_marks(mark.sequence for mark in done)
            for mark in done:
                del self._marks[mark.sequence]
                if self._dead_light.get(mark.topic) == mark.below_offset:
                    del self._dead_light[mark.topic]

    # --- on opening ------------------------------------------------------------------------

    def finish_marked(self) -> int:
        """Finish deletions whose rows are still, or again, there; returns how many."""
        return sum(1 for _ in self._remove_marked())

    def after_cut(self, log_end: int) -> int:
        """Marks of light queues count from the log's end, if it was cut below them; how many.

        What is appended there anew would be dead. Durable on return.
        """
        beyond = [
            mark._replace(below_offset=log_end)
            for mark in self._marks.values()
            if mark.below_offset > log_end and is_light(mark.topic)
        ]
        for mark in beyond:
            self._marks[mark.sequence] = mark
            self._metadata.delete_topic(mark)
            self._dead_light[mark.topic] = log_end
        return len(beyond)
