"""The client, for blocking code: scripts, threads, notebooks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from kvcq_client.async_producer import ProducerCore
from kvcq_client.calls import Calls
from kvcq_client.connection import DEFAULT_TARGET, DEFAULT_TIMEOUT_S, Connection
from kvcq_client.consumer import Consumer
from kvcq_client.consumer_config import ConsumerConfig
from kvcq_client.consumer_core import ConsumerCore
from kvcq_client.forks import begin_grpc
from kvcq_client.loop_thread import LoopThread
from kvcq_client.producer import Producer
from kvcq_client.producer_config import ProducerConfig
from kvcq_client.values import Boundary

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
    from types import TracebackType

    from kvcq_client.consumer_core import Wanted
    from kvcq_client.records import StoredMessage
    from kvcq_client.values import (
        Bounds,
        GroupOffset,
        Message,
        Placed,
        Pulled,
        QueryPage,
        Queue,
        Start,
        StoredBatch,
        Topic,
    )

R = TypeVar("R")


class Client:
    """A connection to one server, and all that can be asked of it.

    `with Client("127.0.0.1:8081") as client:` — nothing is sent before the first call. Every call
    has a deadline, `timeout_s` unless it is given its own; until then a server that is not there,
    or not ready, is tried again. Thread: any. It works in a thread of its own, also where an
    event loop runs already, as in a notebook. A process that is forked once a client was made
    cannot use it, nor one of its own: every call raises ForkedError there.
    """

    def __init__(
        self,
        target: str = DEFAULT_TARGET,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        options: Sequence[tuple[str, Any]] = (),
    ) -> None:
        """`options` are gRPC channel arguments, over the client's own."""
        begin_grpc()
        self._thread = LoopThread()
        self._users: set[Producer | Consumer] = set()
        self._closed = False

        async def connect() -> Connection:
            return Connection(target, timeout_s=timeout_s, options=options)

        self._connection = self._thread.run(connect())
        self._calls = Calls(self._connection)

    @property
    def target(self) -> str:
        """Host and port of the server."""
        return self._connection.target

    def producer(
        self,
        config: ProducerConfig | None = None,
        **settings: Any,  # noqa: ANN401 - ProducerConfig checks them
    ) -> Producer:
        """A producer; `settings` are fields of ProducerConfig. Raises ClosedError."""
        chosen = replace(config or ProducerConfig(), **settings)

        async def make() -> ProducerCore:
            return ProducerCore(self._connection, chosen, self._thread.loop)

        producer = Producer(self._run(make()), self._thread, self._users.discard)
        self._users.add(producer)
        return producer

    def consumer(
        self,
        queues: Wanted = (),
        config: ConsumerConfig | None = None,
        **settings: Any,  # noqa: ANN401 - ConsumerConfig checks them
    ) -> Consumer:
        """A consumer of topics (all their queues), light queues, or queues.

        `{Queue("orders", 0): 42}` says where to begin; else `start` does, a field of
        ConsumerConfig like all `settings`. A `group` keeps offsets and shares no work: each of its
        consumers reads every message. Raises NotFoundError, ClosedError.
        """
        chosen = replace(config or ConsumerConfig(), **settings)

        async def make() -> ConsumerCore:
            core = ConsumerCore(self._connection, self._calls, chosen)
            try:
                await core.follow(queues)
            except BaseException:
                await core.close()
                raise
            return core

        consumer = Consumer(self._run(make()), self._thread, self._users.discard)
        self._users.add(consumer)
        return consumer

    # --- messages --------------------------------------------------------------------------

    def put(self, message: Message, *, timeout_s: float | None = None) -> Placed:
        """Store one message, now. A producer is the way for many.

        Not repeated once it was sent: after UnavailableError or DeadlineError without a reason
        it may be stored.
        """
        return self._run(self._calls.put(message, timeout_s=timeout_s))

    def put_numbered(
        self,
        messages: Sequence[Message],
        *,
        producer_id: str,
        sequence: int,
        timeout_s: float | None = None,
    ) -> bool:
        """Store all of the messages, or none; the same batch again, whenever, changes nothing.

        For whoever cuts batches himself, the same way each time, such as a job that is run again.
        `sequence` numbers the first message; the next batch of the id begins behind the last one.
        Returns whether the batch was there before. Raises NotPossibleError out of sequence,
        NumberReusedError when other messages have that number, NumberPassedError when its batch
        has expired; nothing was stored then.
        """
        return self._run(
            self._calls.put_numbered(
                messages, producer_id=producer_id, sequence=sequence, timeout_s=timeout_s
            )
        )

    def pull(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        max_messages: int = 1000,
        max_bytes: int = 0,
        tag_filter: str = "",
        wait_s: float = 0.0,
        timeout_s: float | None = None,
    ) -> Pulled:
        """Messages of one queue from `offset` on; `wait_s`: how long to wait when there are none.

        Raises OffsetOutOfRangeError, NotFoundError, DataLossError.
        """
        return self._run(
            self._calls.pull(
                topic,
                queue_id,
                offset,
                max_messages=max_messages,
                max_bytes=max_bytes,
                tag_filter=tag_filter,
                wait_s=wait_s,
                timeout_s=timeout_s,
            )
        )

    def query(
        self,
        topic: str,
        key: str,
        *,
        begin_time_ms: int = 0,
        end_time_ms: int = 0,
        max_messages: int = 32,
        cursor: bytes = b"",
        timeout_s: float | None = None,
    ) -> QueryPage:
        """Messages of the topic with the key, oldest first; times are inclusive, 0 is open."""
        return self._run(
            self._calls.query(
                topic,
                key,
                begin_time_ms=begin_time_ms,
                end_time_ms=end_time_ms,
                max_messages=max_messages,
                cursor=cursor,
                timeout_s=timeout_s,
            )
        )

    def get(self, message_id: str, *, timeout_s: float | None = None) -> StoredMessage:
        """One message by the id that a put returned. Raises NotFoundError."""
        return self._run(self._calls.get(message_id, timeout_s=timeout_s))

    def offsets(
        self, queues: Iterable[Queue], *, timeout_s: float | None = None
    ) -> dict[Queue, Bounds]:
        """Min and max offset of each queue. Raises NotFoundError."""
        return self._run(self._calls.offsets(queues, timeout_s=timeout_s))

    def search_time(
        self,
        topic: str,
        queue_id: int,
        time_ms: int,
        boundary: Boundary = Boundary.LOWER,
        *,
        timeout_s: float | None = None,
    ) -> int:
        """The offset of the message that was stored at that time, or next to it."""
        return self._run(
            self._calls.search_time(topic, queue_id, time_ms, boundary, timeout_s=timeout_s)
        )

    def stored_batch(
        self, producer_id: str, sequence: int, *, timeout_s: float | None = None
    ) -> StoredBatch | None:
        """What `put_numbered` stored under that number; None when no batch begins with it."""
        return self._run(self._calls.stored_batch(producer_id, sequence, timeout_s=timeout_s))

    # --- topics ----------------------------------------------------------------------------

    def create_topic(
        self, name: str, queue_count: int = 0, *, timeout_s: float | None = None
    ) -> Topic:
        """The topic exists, durably; a count of 0 is the server's default.

        Repeatable; raises AlreadyExistsError when it has another count.
        """
        return self._run(self._calls.create_topic(name, queue_count, timeout_s=timeout_s))

    def create_topics(
        self, topics: Mapping[str, int] | Iterable[str], *, timeout_s: float | None = None
    ) -> list[Topic]:
        """Names, or names and queue counts. All of 10,000 at a time, or none of them."""
        return self._run(self._calls.create_topics(topics, timeout_s=timeout_s))

    def delete_topic(self, name: str, *, timeout_s: float | None = None) -> None:
        """The topic, or light queue, is gone with all its messages. Raises NotFoundError."""
        self._run(self._calls.delete_topic(name, timeout_s=timeout_s))

    def describe_topic(self, name: str, *, timeout_s: float | None = None) -> Topic:
        """Raises NotFoundError."""
        return self._run(self._calls.describe_topic(name, timeout_s=timeout_s))

    def topics(
        self,
        prefix: str = "",
        *,
        light_queues: bool = False,
        timeout_s: float | None = None,
    ) -> Iterator[Topic]:
        """All topics, or light queues, whose names begin so; `timeout_s` is for each page."""
        pages = self._calls.topics(prefix, light_queues=light_queues, timeout_s=timeout_s)

        async def some() -> list[Topic]:
            found: list[Topic] = []
            async for topic in pages:
                found.append(topic)
                if len(found) == 1000:
                    break
            return found

        while part := self._run(some()):
            yield from part

    # --- groups ----------------------------------------------------------------------------

    def commit_offsets(
        self, group: str, offsets: Mapping[Queue, int], *, timeout_s: float | None = None
    ) -> None:
        """Store the next offset to read of each queue, durably. All of 10,000 at a time."""
        self._run(self._calls.commit_offsets(group, offsets, timeout_s=timeout_s))

    def group_offsets(
        self,
        group: str,
        queues: Iterable[Queue] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> list[GroupOffset]:
        """What the group committed, with the lag: in these queues, or wherever it did."""
        return self._run(self._calls.group_offsets(group, queues, timeout_s=timeout_s))

    def reset_offsets(
        self,
        group: str,
        topic: str,
        to: Start | int,
        *,
        queue_ids: Sequence[int] = (),
        time_ms: int | None = None,
        timeout_s: float | None = None,
    ) -> list[GroupOffset]:
        """Move the group's offsets in a topic: to an end, to an offset, or to a time.

        All queues when `queue_ids` is empty. `time_ms` overrules `to`.
        """
        return self._run(
            self._calls.reset_offsets(
                group, topic, to, queue_ids=queue_ids, time_ms=time_ms, timeout_s=timeout_s
            )
        )

    def groups(self, *, timeout_s: float | None = None) -> list[str]:
        """Names of all groups that committed something."""
        return self._run(self._calls.groups(timeout_s=timeout_s))

    def delete_group(self, group: str, *, timeout_s: float | None = None) -> None:
        """The group's offsets are gone. Repeatable."""
        self._run(self._calls.delete_group(group, timeout_s=timeout_s))

    def statistics(self, *, timeout_s: float | None = None) -> dict[str, float]:
        """The server's numbers, by name; units in the names."""
        return self._run(self._calls.statistics(timeout_s=timeout_s))

    def server_version(self, *, timeout_s: float | None = None) -> str:
        """The version of the program that answers."""
        return self._run(self._calls.server_version(timeout_s=timeout_s))

    # --- end of life -----------------------------------------------------------------------

    def close(self) -> None:
        """Close producers (they deliver first) and consumers, then the connection. Repeatable."""
        if self._closed:
            return
        for user in tuple(self._users):
            user.close()
        self._closed = True
        if self._thread.is_forked:
            return
        self._thread.run(self._connection.close())
        self._thread.close()

    def _run(self, call: Coroutine[Any, Any, R]) -> R:
        if self._closed:
            call.close()
            self._connection.check_open()
        return self._thread.run(call)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
