"""Topics: which exist, from where in the log on their records count, and how one is removed.

What that means for a record: admission.py. Light queues have no row of their own; where one was
deleted, a mark says below which offset its units are dead.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from store.errors import (
    InvalidArgumentError,
    StoreBusyError,
    TopicBusyError,
    TopicExistsError,
    UnknownQueueError,
    UnknownTopicError,
)
from store.format import check_queue_count, check_topic
from store.light_queue import is_light
from store.metadata import DeleteMark, TopicConfig
from store.topics.admission import Admission, dead_below, dead_light_of
from store.topics.live_topics import LiveTopics

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from store.clock import Clock
    from store.config import StoreConfig
    from store.consume_queue import ConsumeQueueStore
    from store.log import QueueKey
    from store.metadata import Metadata

_PAGE_TOPICS = 10_000
#: A stalled consume queue is asked again so often before a deletion gives up: half a minute.
_BUSY_TRIES = 1500
_BUSY_WAIT_S = 0.02


class Topics:
    """The topic table of one store.

    Thread: any; methods named so need the append lock. Memory: bounded caches, and one entry for
    each deleted light queue whose records are still in the log.
    """

    def __init__(
        self, config: StoreConfig, metadata: Metadata, queues: ConsumeQueueStore, clock: Clock
    ) -> None:
        # Constant after construction.
        self._config = config
        self._metadata = metadata
        self._queues = queues
        self._clock = clock
        self._creating = threading.Lock()
        self._pause = threading.Event()  # never set: waiting on it is a pause
        # Guarded by the append lock; read freely.
        self._deleting: set[str] = set()
        self._live = LiveTopics(metadata)
        marks = metadata.delete_marks()
        self._marks = {mark.sequence: mark for mark in marks}
        self._dead_light = dead_light_of(marks)
        #: Which records are dispatched and served. Constant; what it looks up changes.
        self.admission = Admission(self._live, self._dead_light)
        self._last_sequence = max(
            [queues.applied_deletions, *(mark.sequence for mark in marks)], default=0
        )

    # --- looking ---------------------------------------------------------------------------

    def get(self, name: str) -> TopicConfig:
        """Raises UnknownTopicError."""
        found = self._metadata.topics([name])[0]
        if found is None:
            raise UnknownTopicError(name)
        return found

    def require_queue(self, topic: str, queue_id: int) -> int:
        """The physical offset below which the queue has no record; older ones are not its own.

        Raises UnknownTopicError, UnknownQueueError. A light queue must have had a message.
        """
        if is_light(topic):
            if queue_id != 0:
                raise UnknownQueueError(topic, queue_id, 1)
            if self._queues.next_offsets([(topic, 0)])[0] == 0:
                raise UnknownTopicError(topic)
            return self._dead_light.get(topic, 0)
        config = self.get(topic)
        if not 0 <= queue_id < config.queue_count:
            raise UnknownQueueError(topic, queue_id, config.queue_count)
        return config.created_offset

    @contextmanager
    def none_deleted(self) -> Iterator[int]:
        """No topic's rows are removed meanwhile; gives the number of deletions until now."""
        with self._creating:
            yield self._last_sequence

    # --- for the appender, under the append lock -------------------------------------------

    def load(self, keys: Sequence[QueueKey], log_end: int) -> list[int]:
        """The next offsets of these queues; topics are created where that is allowed.

        Raises InvalidArgumentError, UnknownTopicError, UnknownQueueError, TopicBusyError while a
        topic is being deleted. Durability: a topic created here is durable before its first record
        is: the log's flush sees to it.
        """
        places = [(key, 0) if isinstance(key, str) else key for key in keys]
        if self._deleting:
            for topic, _ in places:
                if topic in self._deleting:
                    raise TopicBusyError(topic)
        wanted = [key for key in keys if not isinstance(key, str)]
        names = list({topic for topic, _ in wanted})
        found = dict(zip(names, self._metadata.topics(names), strict=True)) if names else {}
        missing = [topic for topic, config in found.items() if config is None]
        created = self._automatic(missing, log_end) if missing else {}
        for topic in names:
            if topic not in created:
                self._live.exists(topic)
        for topic, queue_id in wanted:
            config = found[topic] or created[topic]
            if not 0 <= queue_id < config.queue_count:
                raise UnknownQueueError(topic, queue_id, config.queue_count)
        if created:
            # Durable with the log's next flush, before any record of theirs is.
            try:
                self._metadata.put_topics(created.values(), sync=False)
            finally:
                self._live.changed(created)
        # A topic made just now has no messages: there is nothing to look up.
        known = [place for place in places if place[0] not in created]
        next_offsets = iter(self._queues.next_offsets(known) if known else ())
        return [0 if topic in created else next(next_offsets) for topic, _ in places]

    def _automatic(self, names: Sequence[str], log_end: int) -> dict[str, TopicConfig]:
        """Topics that a message names and that may come into being by that."""
        count = self._config.default_queue_count
        now_ms = self._clock.now_ms()
        for topic in names:
            check_topic(topic)
        if not self._config.auto_create_topics:
            raise UnknownTopicError(names[0])
        new = tuple.__new__
        return {topic: new(TopicConfig, (topic, count, now_ms, log_end)) for topic in names}

    # --- creating and deleting -------------------------------------------------------------

    def create(self, wanted: Sequence[tuple[str, int]], log_end: int) -> list[TopicConfig]:
        """Topics with these queue counts exist. Under the append lock.

        Raises InvalidArgumentError, TopicExistsError when one exists with another count,
        StoreBusyError; nothing was created then. Durability: with the metadata's next sync.
        """
        config = self._config
        counts: dict[str, int] = {}
        for index, (name, count) in enumerate(wanted):
            check_topic(name, f"topics[{index}].name")
            count = count or config.default_queue_count
            check_queue_count(count, config.max_queue_count, f"topics[{index}].queue_count")
            if counts.setdefault(name, count) != count:
                raise InvalidArgumentError(f"topics[{index}].name", f"{name!r} is given twice")
            if name in self._deleting:
                raise TopicBusyError(name)
        names = list(counts)
        now_ms = self._clock.now_ms()
        result: dict[str, TopicConfig] = {}
        fresh: list[TopicConfig] = []
        for name, existing in zip(names, self._metadata.topics(names), strict=True):
            if existing is None:
                existing = TopicConfig(name, counts[name], now_ms, log_end)
                fresh.append(existing)
            elif existing.queue_count != counts[name]:
                raise TopicExistsError(name, existing.queue_count)
            result[name] = existing
        self._metadata.put_topics(fresh, sync=False)
        self._live.changed(topic.name for topic in fresh)
        return [result[name] for name, _ in wanted]

    def begin_delete(self, name: str) -> int:
        """From now on nobody writes to it; returns its number of queues. Under the append lock."""
        if name in self._deleting:
            raise TopicBusyError(name)
        if is_light(name):
            if self._queues.next_offsets([(name, 0)])[0] == 0:
                raise UnknownTopicError(name)
            count = 1
        else:
            count = self.get(name).queue_count
        self._deleting.add(name)
        return count

    def finish_delete(self, name: str, below_offset: int) -> None:
        """Remove the topic and all its rows; everything below `below_offset` is dispatched.

        Durability: metadata first, synced. Rows that a crash brings back are removed again on
        opening, before anything is dispatched: the mark's sequence tells. Raises StoreBusyError
        when RocksDB stalls for long: the rows are then removed with the next deletion, or on the
        next opening, and until then nobody may write to the name.
        """
        with self._creating:
            self._last_sequence += 1
            mark = DeleteMark(name, below_offset, self._last_sequence)
            self._metadata.delete_topic(mark)
            self._marks[mark.sequence] = mark
            self._live.changed([name])
            if is_light(name):
                self._dead_light[name] = below_offset
            # Earlier ones that met a stall come first: their numbers count as applied with this.
            for applied in self._apply_deletions():
                if applied is not mark:
                    self.end_delete(applied.topic)

    def _delete_rows(self, mark: DeleteMark) -> None:
        """Deletions are applied in their order, so one that meets a stall must not be left out."""
        for _ in range(_BUSY_TRIES):
            try:
                self._queues.delete_topic(mark.topic, mark.sequence)
            except StoreBusyError:
                self._pause.wait(_BUSY_WAIT_S)
            else:
                return
        self._queues.delete_topic(mark.topic, mark.sequence)

    def end_delete(self, name: str) -> None:
        """Writers may come back. Only when its rows are gone, or nothing of it was touched."""
        self._deleting.discard(name)

    def after_cut(self, log_end: int) -> int:
        """On opening after a crash: what was noted of a log end beyond this one counts from here.

        A power loss may take log that topics and marks, which are synced, already stand behind:
        records that are appended there anew would be taken for those of an earlier topic. Returns
        how many were changed. Durable on return.
        """
        after: str | None = None
        changed = 0
        while page := self._metadata.list_topics("", after, _PAGE_TOPICS):
            after = page[-1].name
            beyond = [topic for topic in page if topic.created_offset > log_end]
            self._metadata.put_topics(topic._replace(created_offset=log_end) for topic in beyond)
            self._live.changed(topic.name for topic in beyond)
            changed += len(beyond)
        for mark in list(self._marks.values()):
            if mark.below_offset > log_end and is_light(mark.topic):
                self._marks[mark.sequence] = mark._replace(below_offset=log_end)
                self._metadata.delete_topic(self._marks[mark.sequence])
                self._dead_light[mark.topic] = log_end
                changed += 1
        return changed

    def dead_below(self) -> dict[str, int]:
        """Of topics with a mark of deletion: the physical offset below which records are dead."""
        return dead_below(self._marks.values())

    def create_again(self, found: Mapping[str, tuple[int, int]]) -> list[TopicConfig]:
        """On opening after a crash: of these topics, those without a row get one, durably.

        `found`: the physical offset of the topic's first record, and its highest queue id. Names
        and ids that no topic can have are passed over. Returns the new ones.
        """
        now_ms = self._clock.now_ms()
        config = self._config
        names = [name for name in found if _is_topic(name)]
        created = []
        for name, row in zip(names, self._metadata.topics(names), strict=True):
            first_offset, queue_id = found[name]
            if row is None and 0 <= queue_id < config.max_queue_count:
                count = max(config.default_queue_count, queue_id + 1)
                created.append(TopicConfig(name, count, now_ms, first_offset))
        self._metadata.put_topics(created)
        self._live.changed(topic.name for topic in created)
        return created

    def redo_deletions(self) -> int:
        """On opening: apply deletions that the consume queue lost in a crash; returns how many."""
        return sum(1 for _ in self._apply_deletions())

    def _apply_deletions(self) -> Iterator[DeleteMark]:
        """Those that the consume queue does not have, in their order; each once it is applied."""
        applied = self._queues.applied_deletions
        missing = [mark for mark in self._marks.values() if mark.sequence > applied]
        for mark in sorted(missing, key=lambda mark: mark.sequence):
            self._delete_rows(mark)
            yield mark

    def drop_marks(self, durable_sequence: int, log_start: int, checkpointed: int) -> None:
        """Forget marks that cannot matter any more.

        `durable_sequence` is of the deletions that the consume queue cannot lose; `checkpointed`
        the flushed offset of the checkpoint: above it a mark is needed, see lost_topics.py. A light
        queue's mark stays while its records are in the log, since a rebuild would bring its units
        back.
        """
        with self._creating:
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


def _is_topic(name: str) -> bool:
    try:
        check_topic(name)
    except InvalidArgumentError:
        return False
    return True
