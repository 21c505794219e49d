"""Chooses a queue for messages that name none: by ordering key, or round robin."""

from __future__ import annotations

import random
import threading
from collections import OrderedDict
from functools import lru_cache
from typing import TYPE_CHECKING

from store.format import LONGEST_NAME, java_hash
from store.metadata import MessageType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.message_store import MessageStore

_U64 = (1 << 64) - 1
_LCG_FACTOR = 2862933555777941757  # of Guava's LinearCongruentialGenerator
#: Topics whose turn is remembered, about 200 bytes each. Others begin anywhere.
TOPIC_LIMIT = 16_384


@lru_cache(maxsize=16_384)
def queue_of_key(ordering_key: str, queue_count: int) -> int:
    """The queue of a key, from 0 to `queue_count` - 1. Depends only on these two.

    Jump consistent hash: with one queue more, only a share of 1 / `queue_count` of the keys moves,
    all of them to the new queue. It gives the same queue as RocketMQ 5's proxy for a message group:
    Guava's Hashing.consistentHash over Java's String.hashCode.
    """
    assert queue_count > 0
    state = java_hash(ordering_key) & _U64
    candidate = 0
    while True:
        state = (_LCG_FACTOR * state + 1) & _U64
        following = int((candidate + 1) / (((state >> 33) + 1) / (1 << 31)))
        if following >= queue_count:
            return candidate
        candidate = following


class _Turn:
    """The cached state of a topic."""

    __slots__ = ("is_new", "message_type", "next_queue", "queue_count")

    def __init__(
        self, queue_count: int, message_type: MessageType, *, is_new: bool = False
    ) -> None:
        self.queue_count = queue_count
        self.message_type = message_type
        #: The topic did not exist, and `queue_count` is the default of that time.
        self.is_new = is_new
        # Not always 0: with more topics than are remembered, queue 0 would get every message.
        self.next_queue = random.randrange(queue_count)


class QueueChooser:
    """Round robin by topic, bounded. Thread: any."""

    def __init__(self, store: MessageStore, limit: int = TOPIC_LIMIT) -> None:
        self._store = store
        self._limit = limit
        # Held while topics' rows are looked up, those of a batch at most: what was read before a
        # topic was created or deleted is not noted after `forget`.
        self._choosing = threading.Lock()
        # Guarded by _choosing. By topic; least recently used first.
        self._turns: OrderedDict[str, _Turn] = OrderedDict()

    def choose(self, topic: str, ordering_key: str) -> int:
        """The queue of the key, or, if that is empty, the topic's next one.

        A topic that does not exist yet will be created with the default number of queues.
        """
        with self._choosing:
            turn = self._turn(topic)
            if ordering_key:
                return queue_of_key(ordering_key, turn.queue_count)
            queue_id = turn.next_queue
            turn.next_queue = queue_id + 1 if queue_id + 1 < turn.queue_count else 0
            return queue_id

    def look_up(self, topics: Sequence[str]) -> None:
        """Load the rows of these topics at once, so that the next calls need no lookup."""
        with self._choosing:
            known = self._turns
            unknown = [each for each in topics if each not in known and len(each) <= LONGEST_NAME]
            if unknown:
                self._read(unknown)

    def of_priority(self, topic: str, priority: int) -> int:
        """The queue for messages of that priority; the topic's last queue takes all higher ones."""
        with self._choosing:
            return min(priority, self._turn(topic).queue_count - 1)

    def type_of(self, topic: str) -> MessageType:
        """The topic's type of messages; for a missing topic, any."""
        with self._choosing:
            return self._turn(topic).message_type

    def forget(self, topic: str) -> None:
        """The topic was created, changed or deleted; read it again."""
        with self._choosing:
            self._turns.pop(topic, None)

    def forget_all(self) -> None:
        """The number of queues of a new topic may have changed; read all topics again."""
        with self._choosing:
            self._turns.clear()

    def _turn(self, topic: str) -> _Turn:
        turn = self._turns.get(topic)
        if turn is not None and not (turn.is_new and turn.queue_count != self._default_count):
            self._turns.move_to_end(topic)
            return turn
        (turn,) = self._read([topic])
        return turn

    @property
    def _default_count(self) -> int:
        return self._store.config.default_queue_count

    def _read(self, topics: Sequence[str]) -> list[_Turn]:
        """Load and cache topics that are not cached."""
        read: list[_Turn] = []
        for topic, found in zip(topics, self._store.describe_topics(topics), strict=True):
            if found is None:  # the append creates it, or refuses the message
                turn = _Turn(self._default_count, MessageType.ANY, is_new=True)
            else:
                turn = _Turn(found.queue_count, found.message_type)
            read.append(turn)
            if len(topic) <= LONGEST_NAME:  # else no name of anything: the text is not kept
                self._turns[topic] = turn
                if len(self._turns) > self._limit:
                    self._turns.popitem(last=False)
        return read
