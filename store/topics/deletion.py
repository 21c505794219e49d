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
are done. Opening removes the rows of the others before anything is dispatched. Marks are in the
metadata alone, by number and by name: of light queues there may be millions, for days.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Protocol

from store.base import Lock, retry_while_busy
from store.errors import TopicBusyError
from store.light_queue import is_light
from store.metadata import DeleteMark
from store.topics.dead_names import DeadNames

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from contextlib import AbstractContextManager

    from store.consume_queue import ConsumeQueueStore
    from store.log import CommitLog, Watermark
    from store.metadata import Metadata
    from store.topics.live_topics import LiveTopics


#: Names that are deleted at once, and marks that are read at once.
_TOGETHER = 1000
#: Below the number of every mark.
_LOWEST = -(1 << 63)


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

    Thread: any. Memory: an entry for each name that is being deleted.
    Locks: `rewriting`, `_removing`, `committing`, taken in this order; see docs/threads.md.
    """

    def __init__(self, metadata: Metadata, queues: ConsumeQueueStore, live: LiveTopics) -> None:
        # Constant after construction.
        self._metadata = metadata
        self._queues = queues
        self._live = live
        #: Held while rows are looked up in the log and written to queues: none of a topic that is
        #: removed meanwhile.
        self.rewriting = Lock()
        self._removing = Lock()
        #: Held while offsets of a group are checked and stored, and while a mark is made: never
        #: while rows are removed, which may have to wait.
        self.committing = Lock()
        # Names that are not removed yet. Added to under the append lock; read freely.
        # Each with the number of its mark, None before it has one.
        self._under_way: dict[str, int | None] = {}
        metadata.name_marks()
        #: Below which physical offset records of a deleted name are dead. What it looks up changes.
        self.dead = DeadNames(metadata)
        # Guarded by _removing.
        self._last_sequence = max(queues.applied_deletions, metadata.last_mark())

    @property
    def under_way(self) -> Collection[str]:
        """Names that no append may take. Changes; read it under the append lock."""
        return self._under_way

    def is_marked(self, name: str) -> bool:
        """Whether the name is deleted, but its rows may still be there."""
        return self._under_way.get(name) is not None

    @contextmanager
    def none_meanwhile(self) -> Iterator[int]:
        """No topic's rows are removed meanwhile; gives the number of deletions until now."""
        with self._removing:
            yield self._last_sequence

    # --- the states ------------------------------------------------------------------------

    def delete(
        self, names: Sequence[str], queue_count: Callable[[str], int], appends: Appends
    ) -> None:
        """The names are removed, durably. Many at once cost one sync for each thousand.

        Raises TopicBusyError while one is being deleted, what `queue_count` raises for a name that
        does not exist, and what holding and draining raises: of that thousand none is touched then.
        DiskFullError when there is no room for the marks, likewise.
        StoreBusyError, DiskFullError when rows cannot be removed now: they are with the next
        deletion, of this name or another, or on the next opening, and until then no append takes
        the name. The same goes for a deletion that Ctrl-C ended behind its mark.
        """
        different = list(dict.fromkeys(names))
        for first in range(0, len(different), _TOGETHER):
            some = [name for name in different[first : first + _TOGETHER] if not self._finish(name)]
            if some:
                self._delete(some, queue_count, appends)

    def _delete(
        self, names: list[str], queue_count: Callable[[str], int], appends: Appends
    ) -> None:
        begun = False
        marks: list[DeleteMark] = []
        try:
            with appends.held():
                for name in names:
                    if name in self._under_way:
                        raise TopicBusyError(name)
                queues = [(name, at) for name in names for at in range(queue_count(name))]
                begun = True
                self._under_way.update(dict.fromkeys(names))
                appends.log.hot_queues.forget([*names, *queues])
                below = appends.log.appended_offset
            appends.drain(below)
            with self.rewriting, self._removing:
                with self.committing:
                    marks = [
                        DeleteMark(name, below, sequence)
                        for sequence, name in enumerate(names, self._last_sequence + 1)
                    ]
                    self._last_sequence = marks[-1].sequence
                    self._metadata.delete_topics(marks)
                    self._marked(marks)
                self._remove_marked()
        except BaseException:
            if begun:
                self._abort(names, marks, appends)
            raise

    def _abort(self, names: list[str], marks: list[DeleteMark], appends: Appends) -> None:
        """Without marks appends may take the names again; with them, once their rows are gone."""
        if marks and self._metadata.marks_above(marks[0].sequence - 1, 1) == marks[:1]:
            self._marked(marks)  # though the call failed: all of them, or none
            self._end_applied()
            return

        def end(_error: object) -> None:
            for name in names:
                self._end(name, None)

        # Their offsets were forgotten: they can be loaded again once all of it is dispatched.
        appends.dispatched.call_when(appends.log.appended_offset, end)

    def _finish(self, name: str) -> bool:
        """Whether a deletion of the name failed behind its mark: its rows are removed now."""
        if not self.is_marked(name):
            return False
        with self.rewriting, self._removing:
            if not self.is_marked(name):  # whoever was at it has ended it
                return False
            self._remove_marked()
            self._end_applied()
        return True

    def _end_applied(self) -> None:
        """Those whose rows are gone, where an interrupt came before their end."""
        applied = self._queues.applied_deletions
        for name, sequence in list(self._under_way.items()):
            if sequence is not None and sequence <= applied:
                self._end(name, sequence)

    def _marked(self, marks: list[DeleteMark]) -> None:
        """The marks are in the metadata. Repeatable."""
        names = [mark.topic for mark in marks]
        self._live.changed(names)
        self.dead.changed(names)
        self._under_way.update((mark.topic, mark.sequence) for mark in marks)

    def _remove_marked(self) -> int:
        """Remove rows that the queues still have, in the order of the marks; how many marks.

        Earlier ones that met a stall come first, since their numbers count as applied with later
        ones.
        """
        count = 0
        done = self._queues.applied_deletions
        while page := self._metadata.marks_above(done, _TOGETHER):
            for mark in page:
                retry_while_busy(partial(self._queues.delete_topic, mark.topic, mark.sequence))
                self._end(mark.topic, mark.sequence)
                done = mark.sequence
                count += 1
        return count

    def _end(self, name: str, sequence: int | None) -> None:
        """Appends may take it: its rows are gone, or nothing of it was touched. That deletion alone
        ends: by now another one may be under way."""
        if self._under_way.get(name, -1) == sequence:
            self._under_way.pop(name, None)

    def settle(self, durable_sequence: int, log_start: int, checkpointed: int) -> None:
        """Drop the marks that cannot matter any more: the oldest, up to the first that can.

        `durable_sequence` is of the deletions that the queues cannot lose; `checkpointed` the
        flushed offset of the checkpoint: above it a mark is needed, see lost_topics.py. A light
        queue's mark stays while its records are in the log, since a rebuild would bring its units
        back.
        """
        if not self.dead.has_any:
            return
        some = 1  # mostly the first one stays
        while page := self._metadata.marks_above(_LOWEST, some):
            some = _TOGETHER
            done: list[DeleteMark] = []
            for mark in page:
                end = min(checkpointed, log_start) if is_light(mark.topic) else checkpointed
                if mark.sequence > durable_sequence or mark.below_offset > end:
                    break
                done.append(mark)
            self._metadata.drop_marks(done)
            self.dead.changed(mark.topic for mark in done)
            if len(done) < len(page):
                return
        self.dead.look()

    # --- on opening ------------------------------------------------------------------------

    def finish_marked(self) -> int:
        """Finish deletions whose rows are still, or again, there; returns how many."""
        return self._remove_marked()

    def after_cut(self, log_end: int) -> int:
        """Marks of light queues count from the log's end, if it was cut below them; how many.

        What is appended there anew would be dead. Durable on return.
        """
        count, done = 0, _LOWEST
        while page := self._metadata.marks_above(done, _TOGETHER):
            done = page[-1].sequence
            beyond = [
                mark._replace(below_offset=log_end)
                for mark in page
                if mark.below_offset > log_end and is_light(mark.topic)
            ]
            if beyond:
                self._metadata.delete_topics(beyond)
                self.dead.changed(mark.topic for mark in beyond)
                count += len(beyond)
        return count
