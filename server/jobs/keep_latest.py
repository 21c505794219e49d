"""The job `keep_latest`: of messages with the same key, readers see the latest alone."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from server.jobs.kinds import Outcome
from store.errors import InvalidArgumentError, UnknownTopicError
from store.light_queue import is_light

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcq_client.pb.v1 import jobs_pb2 as pb
    from server.jobs.kinds import Running, Work
    from store.message_store import MessageStore

_PAGE = 1000
#: Part of one processor that it takes: producers keep the rest.
_SHARE = 0.2


class KeepLatest:
    """A topic's queues, one after the other; a light queue; or light queues by prefix.

    Cancelled, the queues that it was done with stay as they are. A light queue that is deleted
    meanwhile is passed over.
    """

    name = "keep_latest"
    unit = "messages"

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def work(self, wanted: pb.KeepLatestJob) -> Work:
        """Raises InvalidArgumentError, UnknownTopicError."""
        store, topic = self._store, wanted.topic
        if not topic:
            raise InvalidArgumentError("topic", "is empty; name a topic or a light queue")
        by_prefix = topic.endswith("*")
        if by_prefix and not is_light(topic):
            raise InvalidArgumentError("topic", f"{topic!r} names no light queues: %LMQ%…*")
        if not by_prefix:
            store.check_queue(topic, 0)

        def keep(running: Running) -> Outcome:
            queues = messages = hidden = 0
            worked_s = time.thread_time()
            for name, queue_id in self._queues(topic):
                running.step(f"queue {queue_id} of {name}", 0, 0)

                def progress(done: int, total: int) -> None:
                    nonlocal worked_s
                    running.report(done, total)
                    now_s = time.thread_time()
                    running.pause((now_s - worked_s) * (1 - _SHARE) / _SHARE)
                    worked_s = time.thread_time()

                try:
                    found = store.keep_latest(name, queue_id, progress)
                except UnknownTopicError:
                    if not by_prefix:
                        raise
                    continue
                queues += 1
                messages += found.messages
                hidden += found.hidden
            return Outcome(
                f"of {messages:,} messages in {queues:,} queues {hidden:,} are hidden: later ones "
                "have their keys",
                {"queues": queues, "messages": messages, "hidden_messages": hidden},
            )

        return keep

    def _queues(self, topic: str) -> Iterator[tuple[str, int]]:
        store = self._store
        if not topic.endswith("*"):
            count = 1 if is_light(topic) else store.describe_topic(topic).queue_count
            yield from ((topic, queue_id) for queue_id in range(count))
            return
        after: str | None = None
        while page := store.list_light_queues(topic[:-1], after, _PAGE):
            for name in page:
                yield name, 0
            after = page[-1]
