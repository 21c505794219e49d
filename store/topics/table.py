"""Topics: which exist, and from where in the log on their records count.

What that means for a record: admission.py. How one is deleted, and that light queues have no row of
their own: deletion.py.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from store.errors import (
    InvalidArgumentError,
    TopicBusyError,
    TopicExistsError,
    UnknownQueueError,
    UnknownTopicError,
)
from store.format import check_may_write, check_queue_count, check_topic, check_topics
from store.light_queue import is_light, limits_of
from store.metadata import KEEP_ALL, Retention, TopicConfig
from store.topics.admission import Admission
from store.topics.deletion import Deletions
from store.topics.live_topics import LiveTopics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from store.base import Clock
    from store.config import StoreConfig
    from store.consume_queue import ConsumeQueueStore
    from store.metadata import Metadata

_PAGE_TOPICS = 10_000
_NONE: Mapping[str, Retention] = MappingProxyType({})


class QueueRules(NamedTuple):
    """What of its records a queue has."""

    created_offset: int  # physical: older records are not its own
    retention: Retention


class Topics:
    """The topic table of one store.

    Thread: any; methods named so need the append lock. Memory: bounded caches.
    """

    def __init__(
        self, config: StoreConfig, metadata: Metadata, queues: ConsumeQueueStore, clock: Clock
    ) -> None:
        # Constant after construction.
        self._metadata = metadata
        self._queues = queues
        self._clock = clock
        self._live = LiveTopics(metadata)
        self.deletions = Deletions(metadata, queues, self._live)
        #: Which records are dispatched and served. Constant; what it looks up changes.
        self.admission = Admission(self._live, self.deletions.dead)
        self.reconfigure(config)

    def reconfigure(self, config: StoreConfig) -> None:
        """What is made or read from now on goes by these. Any thread."""
        self._config = config
        self._light_kept = [
            (beginning, Retention(time_ms)) for beginning, time_ms in limits_of(config.light_hours)
        ]

    # --- looking ---------------------------------------------------------------------------

    def get(self, name: str) -> TopicConfig:
        """Raises UnknownTopicError."""
        found = self._metadata.topics([name])[0]
        if found is None:
            raise UnknownTopicError(name)
        return found

    def queue_count(self, name: str) -> int:
        """Of a topic or light queue. Raises UnknownTopicError; a light queue had a message."""
        if not is_light(name):
            return self.get(name).queue_count
        if self.deletions.is_marked(name) or self._queues.next_offsets([(name, 0)])[0] == 0:
            raise UnknownTopicError(name, "light queue")
        return 1

    def require_queue(self, topic: str, queue_id: int) -> QueueRules:
        """What the queue has of the log.

        Raises UnknownTopicError, UnknownQueueError. A light queue must have had a message.
        """
        if is_light(topic):
            if queue_id != 0:
                raise UnknownQueueError(topic, queue_id, 1)
            self.queue_count(topic)
            return QueueRules(self.deletions.dead.get(topic, 0), self._kept_in(topic))
        config = self.get(topic)
        if not 0 <= queue_id < config.queue_count:
            raise UnknownQueueError(topic, queue_id, config.queue_count)
        return QueueRules(config.created_offset, config.retention)

    def begins_at(self, name: str) -> int | None:
        """Physical offset from which records are those of the topic, or light queue.

        None: there is no such topic. Rises when one of the name is made again; a light queue's
        falls to 0 once no earlier record is in the log.
        """
        if is_light(name):
            return self.deletions.dead.get(name, 0)
        return self._live.get(name)

    def _kept_in(self, light_queue: str) -> Retention:
        for beginning, retention in self._light_kept:
            if light_queue.startswith(beginning):
                return retention
        return KEEP_ALL

    # --- for the appender, under the append lock -------------------------------------------

    def load(
        self, queues: Sequence[tuple[str, int]], light: Sequence[str], log_end: int
    ) -> list[int]:
        """The next offsets of these queues, then those of these light queues; topics are created
        where that is allowed.

        Raises InvalidArgumentError, UnknownTopicError, UnknownQueueError, TopicBusyError while a
        topic is being deleted. Durability: a topic created here is durable before its first record
        is: the log's flush sees to it.
        """
        # In the order of their rows: they are looked up, and made, in half the time.
        names = sorted({topic for topic, _ in queues})
        for name in names:  # also of those that exist: their queues are never hot
            check_may_write(name)
        if deleting := self.deletions.under_way:
            for name in (*names, *light):
                if name in deleting:
                    raise TopicBusyError(name)
        rows = self._metadata.topics(names) if names else []
        configs = {row.name: row for row in rows if row is not None}
        self._live.exist(configs)
        created = [name for name in names if name not in configs]
        if created:
            configs |= dict.fromkeys(created, self._automatic(created, log_end))
        for topic, queue_id in queues:
            count = configs[topic].queue_count
            if not 0 <= queue_id < count:
                raise UnknownQueueError(topic, queue_id, count)
        if created:
            # Durable with the log's next flush, before any record of theirs is.
            try:
                self._metadata.put_topics_like(created, configs[created[0]])
            finally:
                self._live.changed(created)
        # A topic made just now has no messages: there is nothing to look up.
        if len(created) == len(names) and not light:
            return [0] * len(queues)
        lone = [(name, 0) for name in light]
        if not created:
            return self._queues.next_offsets([*queues, *lone])
        new = set(created)
        places = [queue for queue in queues if queue[0] not in new] + lone
        found = iter(self._queues.next_offsets(places) if places else ())
        of_queues = [0 if topic in new else next(found) for topic, _ in queues]
        return [*of_queues, *found]

    def _automatic(self, names: Sequence[str], log_end: int) -> TopicConfig:
        """What topics are that a message names and that may come into being by that; the name is
        that of the first."""
        count = self._config.default_queue_count
        now_ms = self._clock.now_ms()
        check_topics(names)
        if not self._config.auto_create_topics:
            raise UnknownTopicError(names[0])
        return TopicConfig(names[0], count, now_ms, log_end)

    # --- creating --------------------------------------------------------------------------

    def create(
        self,
        wanted: Sequence[tuple[str, int]],
        log_end: int,
        retentions: Mapping[str, Retention] = _NONE,
    ) -> list[TopicConfig]:
        """Topics with these queue counts exist. Under the append lock.

        `retentions`: of those that keep less than the log has, by name.
        Raises InvalidArgumentError, TopicExistsError when one exists with another count or another
        retention, StoreBusyError; nothing was created then. Durability: with the metadata's next
        sync.
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
            if name in self.deletions.under_way:
                raise TopicBusyError(name)
        names = list(counts)
        now_ms = self._clock.now_ms()
        result: dict[str, TopicConfig] = {}
        fresh: list[TopicConfig] = []
        for name, existing in zip(names, self._metadata.topics(names), strict=True):
            retention = retentions.get(name)
            if existing is None:
                kept = retention or KEEP_ALL
                existing = TopicConfig(name, counts[name], now_ms, log_end, kept)
                fresh.append(existing)
            elif existing.queue_count != counts[name]:
                raise TopicExistsError(name, existing.queue_count)
            elif retention not in (None, existing.retention):
                raise TopicExistsError(name, existing.queue_count, "another retention")
            result[name] = existing
        self._metadata.put_topics(fresh, sync=False)
        self._live.changed(topic.name for topic in fresh)
        return [result[name] for name, _ in wanted]

    def keep(self, name: str, change: Callable[[Retention], Retention]) -> TopicConfig:
        """The topic keeps what `change` makes of what it kept. Under the append lock.

        Raises UnknownTopicError, TopicBusyError, and what `change` raises; nothing changed then.
        Durability: with the metadata's next sync.
        """
        if name in self.deletions.under_way:
            raise TopicBusyError(name)
        found = self.get(name)
        changed = found._replace(retention=change(found.retention))
        if changed != found:
            self._metadata.put_topics([changed], sync=False)
        return changed

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
        return changed + self.deletions.after_cut(log_end)

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


def _is_topic(name: str) -> bool:
    try:
        check_topic(name)
    except InvalidArgumentError:
        return False
    return True
