"""The job `keep_latest`: of messages with the same key, readers only see the latest."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from migration.jobs import Outcome
from store.errors import InvalidArgumentError, UnknownTopicError
from store.light_queue import is_light

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcq_client.pb.v1 import jobs_pb2 as pb
    from migration.jobs import Job
    from server.jobs.kinds import Work
    from store.message_store import MessageStore
    from store.metadata import TopicConfig

_PAGE = 1000
#: The job's share of one processor; the rest is left for producers.
_SHARE = 0.2


class KeepLatest:
    """Works on the queues of one topic, on one light queue, on all light queues with a prefix, or
    on every topic that is set to keep the latest message of each key.

    Queues that were finished before the job is cancelled stay finished. Where the job covers
    several topics or light queues, one that is deleted meanwhile is skipped.
    """

    name = "keep_latest"
    unit = "messages"

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def work(self, wanted: pb.KeepLatestJob) -> Work:
        """Raises InvalidArgumentError, UnknownTopicError."""
        store, topic = self._store, wanted.topic
        by_prefix = topic.endswith("*")
        if by_prefix and not is_light(topic):
            raise InvalidArgumentError(
                "topic", f"{topic!r} is not a prefix of light queues (%LMQ%…*)"
            )
        if topic and not by_prefix:
            store.check_queue(topic, 0)
        if not topic and not any(True for _ in self.topics()):
            raise InvalidArgumentError(
                "topic",
                "is empty, and no topic keeps only the latest message of each key: `kvcq "
                "topic update NAME --latest` sets that",
            )

        def keep(running: Job) -> Outcome:
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
                    found = store.maintenance.keep_latest(name, queue_id, progress)
                except UnknownTopicError:
                    if topic and not by_prefix:
                        raise
                    continue
                queues += 1
                messages += found.messages
                hidden += found.hidden
            return Outcome(
                f"of {messages:,} messages in {queues:,} queues, {hidden:,} are hidden "
                "because later ones have their keys",
                {"queues": queues, "messages": messages, "hidden_messages": hidden},
            )

        return keep

    def topics(self) -> Iterator[TopicConfig]:
        """Yield the topics that are set to keep the latest message of each key."""
        after: str | None = None
        while page := self._store.list_topics("", after, _PAGE):
            yield from (topic for topic in page if topic.retention.latest)
            after = page[-1].name

    def _queues(self, topic: str) -> Iterator[tuple[str, int]]:
        store = self._store
        if not topic:
            for found in self.topics():
                yield from ((found.name, queue_id) for queue_id in range(found.queue_count))
        elif not topic.endswith("*"):
            count = 1 if is_light(topic) else store.describe_topic(topic).queue_count
            yield from ((topic, queue_id) for queue_id in range(count))
        else:
            after: str | None = None
            while page := store.list_light_queues(topic[:-1], after, _PAGE):
                yield from ((name, 0) for name in page)
                after = page[-1]
