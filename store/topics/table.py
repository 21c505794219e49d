"""Topics: which exist, and where in the log they begin.

admission.py defines what that means for a record. Entries of the state topic create, change and
delete topics. Decisions use the state at the log's end, under the append lock; readers use the
state at the dispatch point. Light queues have no row: one exists if it has a message.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from store.errors import (
    InvalidArgumentError,
    TopicExistsError,
    UnknownQueueError,
    UnknownTopicError,
)
from store.format import (
    check_all_may_write,
    check_may_write,
    check_queue_count,
    check_topic,
    check_topics,
    is_system_topic,
)
from store.light_queue import is_light, limits_of
from store.metadata import KEEP_ALL, MessageType, Retention, TopicConfig
from store.state import (
    MOST_MADE,
    STATE_TOPIC,
    LiteTopicsOf,
    Tables,
    TopicEnded,
    TopicKeeps,
    TopicsMade,
    TopicTakes,
)
from store.topics.admission import Admission
from store.topics.ends import End, Ends
from store.topics.remembered import DeadNames, LiveTopics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from store.base import Clock
    from store.config import StoreConfig
    from store.consume_queue import ConsumeQueueStore
    from store.state import Changes, Entry, Rows, StateView

_NONE: Mapping[str, Retention] = MappingProxyType({})
_NO_TYPES: Mapping[str, MessageType] = MappingProxyType({})
_NO_NAMES: frozenset[str] = frozenset()
#: Not created by a record, because records of topics are in this topic.
_STATE = TopicConfig(STATE_TOPIC, 1, 0, 0)


class QueueRules(NamedTuple):
    """Which of its records a queue keeps."""

    created_offset: int  # physical: older records are not its own
    retention: Retention
    ended: End | None = None  # of a light queue, which has no created_offset: its last deletion


class TopicsNeededError(Exception):
    """Messages name missing topics that may be created: create them, then append again."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(f"{len(names)} topics are to be made")
        self.names = names


class Topics:
    """The topic table of one store.

    Thread: any; methods that say so need the append lock. Memory: bounded caches.
    """

    def __init__(
        self,
        config: StoreConfig,
        state: Rows,
        view: StateView,
        queues: ConsumeQueueStore,
        clock: Clock,
        log_end: int,
    ) -> None:
        """`state`: at the dispatch point. `view`: at the log's end, which is `log_end` now."""
        # Constant after construction.
        #: At the log's end. Under the append lock.
        self.view = view
        self._tables = Tables(state)
        self._queues = queues
        self._clock = clock
        self._live = LiveTopics(self._tables)
        self._dead = DeadNames(self._tables)
        #: Which records are dispatched and served. Constant, but the data that it looks up changes.
        self.admission = Admission(self._live, self._dead)
        #: Deletions of names, as far as this process has seen them.
        self.ends = Ends(log_end)
        # Guarded by the append lock: topics that were made for the messages that come next, how
        # many queues each has, and the log's end then.
        self._fresh: frozenset[str] = frozenset()
        self._fresh_count = 0
        self._fresh_end = -1
        # Guarded by the append lock: whether a record of the state is being appended, and the queue
        # offsets of the next records of system topics. These queues are never hot, so an append by
        # a caller is rejected here.
        self._takes_state = False
        self._next_own: dict[str, int] = {}  # of the queues that were looked up
        self.reconfigure(config)

    def reconfigure(self, config: StoreConfig) -> None:
        """Use these settings for everything created or read from now on. Thread-safe."""
        self._config = config
        self._light_kept = [
            (beginning, Retention(time_ms)) for beginning, time_ms in limits_of(config.light_hours)
        ]

    # --- looking ---------------------------------------------------------------------------

    def get(self, name: str) -> TopicConfig:
        """Raises UnknownTopicError."""
        found = _STATE if name == STATE_TOPIC else self._tables.topic(name)
        if found is None:
            raise UnknownTopicError(name)
        return found

    def queue_count(self, name: str) -> int:
        """Number of queues of a topic or light queue. Raises UnknownTopicError; a light queue must
        have had a message."""
        if not is_light(name):
            return self.get(name).queue_count
        if self._queues.next_offsets([(name, 0)])[0] == 0:
            raise UnknownTopicError(name, "light queue")
        return 1

    def require_queue(self, topic: str, queue_id: int) -> QueueRules:
        """Returns which records the queue keeps.

        Raises UnknownTopicError, UnknownQueueError. A light queue must have had a message.
        """
        if is_light(topic):
            if queue_id != 0:
                raise UnknownQueueError(topic, queue_id, 1)
            self.queue_count(topic)
            ended = self.ends.get(topic)  # before anything is read of the queue
            return QueueRules(self._dead.get(topic), self._kept_in(topic), ended)
        config = self.get(topic)
        if not 0 <= queue_id < config.queue_count:
            raise UnknownQueueError(topic, queue_id, config.queue_count)
        return QueueRules(config.created_offset, config.retention)

    def begins_at(self, name: str) -> int | None:
        """Physical offset at which the topic begins; None if there is no such topic.

        Rises when a topic of the name is created again.
        """
        return self._live.get(name)

    def _kept_in(self, light_queue: str) -> Retention:
        for beginning, retention in self._light_kept:
            if light_queue.startswith(beginning):
                return retention
        return KEEP_ALL

    def changed(self, changes: Changes, physical_offset: int) -> None:
        """Dispatch applied these changes: invalidate caches of their topics."""
        self._live.changed(key[1:].decode() for key in changes.written if key[:1] == b"t")
        if changes.ended:
            self._dead.changed(changes.ended)
            self.ends.dispatched(changes.ended, physical_offset)

    def have_ended(self, before: Mapping[str, End]) -> bool:
        """Whether one of these names was deleted since `before`, its last deletion then. Must hold
        the append lock. Raises UnknownTopicError for one whose rows still exist."""
        for name in before:
            if self.view.has_ended(name):
                raise UnknownTopicError(name, "light queue" if is_light(name) else "topic")
        changed = [name for name, end in before.items() if self.ends.get(name) != end]
        if not changed:
            return False  # the usual case
        # Of many deletions only the last offset is remembered: a topic from before it still exists.
        found = zip(changed, self.view.tables.topics(changed), strict=True)
        return any(
            topic is None or topic.created_offset >= before[name].below for name, topic in found
        )

    def unless_ended(self, before: Mapping[str, End], entries: Sequence[Entry]) -> Sequence[Entry]:
        """The entries, if none of the names they depend on was deleted. Raises UnknownTopicError
        otherwise."""
        if self.have_ended(before):
            raise UnknownTopicError(next(iter(before)))
        return entries

    # --- for the appender, under the append lock -------------------------------------------

    def next_own(self, topic: str) -> int:
        """The next offset in queue 0, the only one, of a system topic."""
        found = self._next_own.get(topic)
        if found is None:
            found = self._next_own[topic] = self._queues.next_offsets([(topic, 0)])[0]
        return found

    def deciding(self, entries: Sequence[Entry], log_end: int) -> None:
        """A record of the state with these entries is about to be appended."""
        self._takes_state = True
        if ended := [entry.topic for entry in entries if isinstance(entry, TopicEnded)]:
            self.ends.decided(ended, log_end)

    def own_appended(self, following: Mapping[str, int]) -> None:
        """Note that the records are in the log; `following` are the next offsets of system topics.
        Repeatable."""
        self._next_own.update(following)

    def decided(self, *, is_appended: bool) -> None:
        """End what `deciding` began: all of it is in the log, or nothing. Repeatable."""
        self.ends.settled(is_appended=is_appended)
        self._takes_state = False

    def load(
        self, queues: Sequence[tuple[str, int]], light: Sequence[str], log_end: int
    ) -> list[int]:
        """The next offsets of these queues, then of these light queues.

        Raises TopicsNeededError for topics that must be created first; InvalidArgumentError,
        UnknownTopicError, UnknownQueueError.
        """
        if self._takes_state:
            are_own = [is_system_topic(topic) for topic, _ in queues]
            others = [queue for queue, own in zip(queues, are_own, strict=True) if not own]
            behind = iter(self._load(others, light, log_end) if others or light else ())
            first = [
                self.next_own(queue[0]) if own else next(behind)
                for queue, own in zip(queues, are_own, strict=True)
            ]
            return [*first, *behind]
        return self._load(queues, light, log_end)

    def _load(
        self, queues: Sequence[tuple[str, int]], light: Sequence[str], log_end: int
    ) -> list[int]:
        """The next offsets, for queues of messages."""
        # In the order of their rows: they are looked up, and made, in half the time.
        names = sorted({topic for topic, _ in queues})
        fresh = self._fresh if log_end == self._fresh_end else _NO_NAMES
        if fresh.issuperset(names):  # looked up before they were made
            _check_queues(queues, {}, self._fresh_count)
        else:
            self._require(names, queues)
        places = [*queues, *((name, 0) for name in light)]
        # The queues still have rows of what has ended and is not dispatched.
        known = [name not in fresh and not self.view.has_ended(name) for name, _ in places]
        if all(known):
            return self._queues.next_offsets(places)
        asked = [place for place, is_known in zip(places, known, strict=True) if is_known]
        found_offsets = iter(self._queues.next_offsets(asked) if asked else ())
        return [next(found_offsets) if is_known else 0 for is_known in known]

    def _require(self, names: Sequence[str], queues: Sequence[tuple[str, int]]) -> None:
        """Check that messages may be put into these queues of these topics. Raises like `load`."""
        counts: dict[str, int] = {}
        missing: list[str] = []
        # Also if they exist, since queues of system topics are never hot.
        check_all_may_write(names)
        for name, found in zip(names, self.view.tables.topics(names), strict=True):
            if found is not None:
                counts[name] = found.queue_count
            else:
                missing.append(name)
        if missing:
            check_topics(missing)
            if not self._config.auto_create_topics:
                raise UnknownTopicError(missing[0])
        _check_queues(queues, counts, self._config.default_queue_count)
        if missing:
            raise TopicsNeededError(missing)

    def needed(self, queues: Sequence[tuple[str, int]]) -> list[TopicsMade]:
        """Entries that create the missing topics of these queues, into which messages may then be
        put.

        Raises InvalidArgumentError, UnknownTopicError, UnknownQueueError.
        """
        try:
            self._require(sorted({topic for topic, _ in queues}), queues)
        except TopicsNeededError as needed:
            return self.automatic(needed.names)
        return []

    def automatic(self, names: Sequence[str]) -> list[TopicsMade]:
        """Entries that create these topics for the messages that follow."""
        now_ms, count = self._clock.now_ms(), self._config.default_queue_count
        return _made(names, count, now_ms, KEEP_ALL)

    def made(self, topics: Sequence[TopicsMade], log_end: int) -> None:
        """The topics were created, all with the same number of queues; none has a record below
        `log_end`."""
        self._fresh = frozenset(name for each in topics for name in each.topics)
        self._fresh_count, self._fresh_end = topics[0].queue_count, log_end

    def create(
        self,
        wanted: Sequence[tuple[str, int]],
        retentions: Mapping[str, Retention] = _NONE,
        types: Mapping[str, MessageType] = _NO_TYPES,
    ) -> list[Entry]:
        """Entries that create the missing ones of these topics.

        `retentions`: of topics that keep less than the log, by name; `types`: of topics for
        messages of one type. Raises InvalidArgumentError, and TopicExistsError if one exists with
        another count, retention or type.
        """
        config = self._config
        counts: dict[str, int] = {}
        for index, (name, count) in enumerate(wanted):
            check_topic(name, f"topics[{index}].name")
            check_may_write(name, f"topics[{index}].name")
            count = count or config.default_queue_count
            check_queue_count(count, config.max_queue_count, f"topics[{index}].queue_count")
            if counts.setdefault(name, count) != count:
                raise InvalidArgumentError(f"topics[{index}].name", f"{name!r} is given twice")
        names = list(counts)
        now_ms = self._clock.now_ms()
        missing: dict[tuple[int, Retention], list[str]] = {}
        for name, existing in zip(names, self.view.tables.topics(names), strict=True):
            retention = retentions.get(name)
            if existing is None:
                missing.setdefault((counts[name], retention or KEEP_ALL), []).append(name)
            elif existing.queue_count != counts[name]:
                raise TopicExistsError(name, existing.queue_count)
            elif retention not in (None, existing.retention):
                raise TopicExistsError(name, existing.queue_count, "another retention")
            elif types.get(name) not in (None, existing.message_type):
                raise TopicExistsError(name, existing.queue_count, "another message type")
        entries: list[Entry] = []
        for (count, retention), names in missing.items():
            entries += _made(names, count, now_ms, retention)
            for name in names:
                if types.get(name):  # one for all types is made so
                    entries += self._taking(name, types[name])
        return entries

    def keep(self, name: str, change: Callable[[Retention], Retention]) -> list[TopicKeeps]:
        """Entries that apply `change` to what the topic keeps; none if it stays the same. Raises
        UnknownTopicError, and what `change` raises."""
        kept = self._at_the_end(name).retention
        changed = change(kept)
        return [] if changed == kept else [TopicKeeps(name, changed)]

    def take(self, name: str, message_type: MessageType) -> list[Entry]:
        """Entries that set the topic's type of messages. Raises UnknownTopicError."""
        is_so = self._at_the_end(name).message_type == message_type
        return [] if is_so else self._taking(name, message_type)

    def _taking(self, name: str, message_type: MessageType) -> list[Entry]:
        entries: list[Entry] = [TopicTakes(name, message_type)]
        if message_type is MessageType.LITE and self.view.tables.lite_expiry_ms(name) is None:
            entries.append(LiteTopicsOf(name, 0))
        return entries

    def _at_the_end(self, name: str) -> TopicConfig:
        """A topic that may be changed. Raises UnknownTopicError, InvalidArgumentError."""
        check_may_write(name)
        found = self.view.tables.topic(name)
        if found is None:
            raise UnknownTopicError(name)
        return found

    def end(self, names: Sequence[str]) -> list[TopicEnded]:
        """Entries that delete these topics or light queues. Raises UnknownTopicError,
        InvalidArgumentError."""
        for name in names:
            check_may_write(name)
            if is_light(name):
                if self.view.has_ended(name):
                    raise UnknownTopicError(name, "light queue")
                self.queue_count(name)
            elif self.view.tables.topic(name) is None:
                raise UnknownTopicError(name)
        return [TopicEnded(name) for name in names]

    def hot_keys(self, name: str) -> list[tuple[str, int] | str]:
        """The keys of the topic or light queue among the hot queues, before its deletion is in
        `view`."""
        found = None if is_light(name) else self.view.tables.topic(name)
        return [name] if found is None else [(name, at) for at in range(found.queue_count)]


def _check_queues(
    queues: Sequence[tuple[str, int]], counts: Mapping[str, int], others: int
) -> None:
    """`counts`: of existing topics; all others have, or will have, `others` queues. Raises
    UnknownQueueError."""
    if not counts:  # the usual case for a batch to new topics
        ids = [queue_id for _, queue_id in queues]
        if min(ids, default=0) >= 0 and max(ids, default=0) < others:
            return
    for topic, queue_id in queues:
        count = counts.get(topic, others)
        if not 0 <= queue_id < count:
            raise UnknownQueueError(topic, queue_id, count, is_new=topic not in counts)


def _made(
    names: Sequence[str], queue_count: int, now_ms: int, retention: Retention
) -> list[TopicsMade]:
    return [
        TopicsMade(names[first : first + MOST_MADE], queue_count, now_ms, retention)
        for first in range(0, len(names), MOST_MADE)
    ]
