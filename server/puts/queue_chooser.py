"""A queue for messages that name none: the queues of their topic in turn."""

from __future__ import annotations

import random
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from store.errors import InvalidArgumentError, UnknownTopicError
from store.format import LONGEST_NAME

if TYPE_CHECKING:
    from store.message_store import MessageStore

#: Topics whose turn is remembered, about 200 bytes each. Others begin anywhere.
TOPIC_LIMIT = 16_384


class QueueChooser:
    """Round robin by topic, bounded. Thread: any."""

    def __init__(self, store: MessageStore, limit: int = TOPIC_LIMIT) -> None:
        self._store = store
        self._limit = limit
        # Held for microseconds, a look at the topic's row included: what was read before a topic
        # was created or deleted is not noted after `forget`.
        self._choosing = threading.Lock()
        # Guarded by _choosing. Topic to [queue count, next queue]; least recently used first.
        self._turns: OrderedDict[str, list[int]] = OrderedDict()

    def choose(self, topic: str) -> int:
        """The next queue of the topic; a topic that does not exist yet gets a first one."""
        with self._choosing:
            turn = self._turns.get(topic)
            if turn is None:
                turn = self._first_turn(topic)
            else:
                self._turns.move_to_end(topic)
            count, queue_id = turn
            turn[1] = queue_id + 1 if queue_id + 1 < count else 0
            return queue_id

    def forget(self, topic: str) -> None:
        """The topic was created or deleted: its queue count is to be read again."""
        with self._choosing:
            self._turns.pop(topic, None)

    def _first_turn(self, topic: str) -> list[int]:
        try:
            count = self._store.describe_topic(topic).queue_count
        except (UnknownTopicError, InvalidArgumentError):
            # The append creates it with the default count, or refuses the message.
            count = self._store.config.default_queue_count
            if len(topic) > LONGEST_NAME:  # no name of anything: the caller's text is not kept
                return [count, 0]
        # Not always 0: with more topics than are remembered, queue 0 would get every message.
        turn = self._turns[topic] = [count, random.randrange(count)]
        if len(self._turns) > self._limit:
            self._turns.popitem(last=False)
        return turn
