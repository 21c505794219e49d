"""Puts: decodes messages, appends them in the loop or in a thread, and acknowledges them once they
are durable."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.access import check_batch, current_caller, is_laborious_batch
from server.puts.appender import Appender
from server.puts.coalescer import PutCoalescer, of_single_put
from server.puts.durability import Durability
from server.puts.producer_sessions import ProducerSessions
from server.puts.queue_chooser import QueueChooser
from server.puts.stream import AppendedBatch, PutStream
from server.wire import (
    Budget,
    TooMuchError,
    batch_out,
    checksum_of,
    inline_budget,
    message_in,
    only_placed_out,
    put_out,
    request_in,
    topics_of,
)
from server.workers import Workers
from store.errors import InvalidArgumentError
from store.format import pack_host

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from server.edge import Requests
    from server.metrics import CallMetrics
    from server.puts.coalescer import PutResult
    from server.stage import Stage
    from store.held import TimersSet
    from store.message import Host, Message
    from store.message_store import MessageStore
    from store.metadata import MessageType

#: Large puts that are taken apart and stored at once.
BULK_THREADS = 2
#: Look-ups of producers that are not remembered: one row each, which may have to come from disk.
PRODUCER_THREADS = 2
#: Batches of one put stream that wait for their answers: eight times what a producer keeps in
#: flight, and a bound on what one stream may hold.
STREAM_WINDOW = 64
#: Number of producers that are remembered with their latest batches; a message of these takes about
#: 90 bytes. Forgotten ones are looked up in the log.
REMEMBERED_PRODUCERS = 4096
REMEMBERED_BATCHES = 16
REMEMBERED_MESSAGES = 1_000_000
#: Topics of a batch that are looked up together, in the loop.
_MOST_LOOKED_UP = 1024


class Puts:
    """Writes messages to the store. Appends of few messages run in the loop, since they take
    microseconds. Owned by the event loop's thread."""

    def __init__(self, store: MessageStore, stage: Stage, metrics: CallMetrics) -> None:
        loop = asyncio.get_running_loop()
        self._stage = stage
        self._metrics = metrics
        self._timers = store.timers
        self._at_append = store.acknowledges_at_append
        self._store_host = pack_host(store.config.store_host)  # as message ids begin
        self._producers = Workers(PRODUCER_THREADS, "producer")
        self._bulk = Workers(BULK_THREADS)
        self._appender = Appender(store, self._bulk)
        self._chooser = QueueChooser(store)
        flush_timeout_s = store.config.sync_flush_timeout_s
        self.durability = Durability(store, loop, flush_timeout_s)
        self._coalescer = PutCoalescer(
            store, self._appender, self.durability, loop, flush_timeout_s
        )
        self.sessions = ProducerSessions(
            store,
            self._appender,
            self._producers,
            REMEMBERED_PRODUCERS,
            REMEMBERED_BATCHES,
            REMEMBERED_MESSAGES,
        )

    def close(self) -> None:
        """Wait for running appends. Blocks."""
        for threads in (self._producers, self._bulk, self._appender):
            threads.close()

    @property
    def waiting(self) -> int:
        """Number of large puts that wait for a thread."""
        return self._bulk.waiting

    def forget_topic(self, name: str) -> None:
        """The topic was created or deleted."""
        self._chooser.forget(name)

    def reconfigured(self) -> None:
        """The store's settings were changed."""
        self._chooser.forget_all()

    async def put(self, given: pb.Message, born_host: Host, *, large: bool) -> pb.PutResponse:
        """Put one message. Raises what the store raises, and FlushTimeoutError."""
        if large:
            return await self._put_large(given, born_host)
        try:
            message = message_in(given, born_host, self._chooser.choose, inline_budget())
        except TooMuchError:
            return await self._put_large(given, born_host)
        return self._put_out(await self._coalescer.put(message))

    def put_now(self, given: pb.Message, born_host: Host) -> pb.PutResponse | None:
        """Like `put`, immediately, for a single message; None, and nothing done, if it has to wait
        for the disk, a lock or a thread."""
        if not self._at_append:
            return None
        try:
            message = message_in(given, born_host, self._chooser.choose, inline_budget())
        except TooMuchError:
            return None
        result = self._coalescer.put_now(message)
        return None if result is None else self._put_out(result)

    def _put_out(self, result: PutResult) -> pb.PutResponse:
        placed, store_time_ms = result
        self._metrics.put_one(placed.topic, placed.record_size)
        current_caller().count_messages(1)
        return put_out(placed, store_time_ms, self._store_host)

    async def _put_large(self, given: pb.Message, born_host: Host) -> pb.PutResponse:
        try:
            stored = await self._appender.large_of(
                lambda: [message_in(given, born_host, self._chooser.choose, Budget())]
            )
        except InvalidArgumentError as error:
            raise of_single_put(error) from None
        await self.durability.wait(stored.end_offset)
        self._metrics.put_one(given.topic, stored.record_bytes)
        current_caller().count_messages(1)
        return pb.PutResponse(
            placed=only_placed_out(stored.columns, self._store_host),
            store_time_ms=stored.store_time_ms,
        )

    async def put_made(
        self, topic: str, make: Callable[[Budget], Sequence[Message]], *, large: bool
    ) -> Sequence[int]:
        """Store all messages that `make` returns, all of one topic, or none. Returns their queue
        offsets.

        If `make` raises TooMuchError because the budget is exceeded, it is called again in a
        thread. Raises what it raises, and like `put`.
        """
        messages: Sequence[Message] | None = None
        if not large:
            with suppress(TooMuchError):
                messages = make(inline_budget())
        if messages is not None and len(messages) == 1:
            placed, _ = await self._coalescer.put(messages[0])
            self._metrics.put_one(topic, placed.record_size)
            current_caller().count_messages(1)
            return (placed.queue_offset,)
        if messages is None:
            stored = await self._appender.large_of(lambda: make(Budget()))
        else:
            stored = await self._appender.small(messages)
        await self.durability.wait(stored.end_offset)
        self._metrics.put({topic: stored.columns.message_count}, stored.record_bytes)
        current_caller().count_messages(stored.columns.message_count)
        return stored.columns.queue_offsets

    async def put_delayed(
        self, make: Callable[[Budget], tuple[Sequence[Message], Sequence[int]]]
    ) -> TimersSet:
        """Store the delayed messages that `make` returns, with their times, all or none: see
        Timers.put. Runs in a thread. Raises what it and `make` raise."""

        def put() -> tuple[Sequence[Message], TimersSet]:
            messages, due_ms = make(Budget())
            return messages, self._timers.put(messages, due_ms, wait=False)

        messages, done = await self._bulk.run(put)
        await self.durability.wait(done.end_offset)
        counts = Counter(each.topic for each in messages)
        self._metrics.put(counts, sum(len(each.body) for each in messages))
        current_caller().count_messages(len(messages))
        return done

    def choose(self, topic: str, ordering_key: str) -> int:
        """The queue for a message that names none."""
        return self._chooser.choose(topic, ordering_key)

    def of_priority(self, topic: str, priority: int) -> int:
        """The queue for a message of that priority."""
        return self._chooser.of_priority(topic, priority)

    def type_of(self, topic: str) -> MessageType:
        """The topic's type of messages; for a missing topic, any."""
        return self._chooser.type_of(topic)

    async def put_batch(
        self, request: pb.PutBatchRequest, born_host: Host, *, large: bool
    ) -> pb.PutBatchResponse:
        """Put all messages of the batch, or none. Raises like `put`."""
        answer = await self._append(request, born_host, large=large)
        await self.durability.wait(answer.end_offset)
        return answer.response

    def stream(
        self, requests: Requests, born_host: Host, call_id: str
    ) -> AsyncGenerator[pb.PutStreamResponse, None]:
        """Put batches; each is answered once it is durable, in order."""

        caller = current_caller()

        async def append(batch: pb.PutBatchRequest) -> AppendedBatch:
            try:
                if is_laborious_batch(caller, batch):
                    await self._bulk.run(check_batch, caller, batch)
                else:
                    check_batch(caller, batch)
                return await self._append(batch, born_host, large=requests.is_large)
            finally:
                requests.end()

        return PutStream(
            append,
            self.durability,
            self._stage,
            self._metrics,
            call_id,
            STREAM_WINDOW,
        ).run(requests)

    async def _append(
        self, request: pb.PutBatchRequest, born_host: Host, *, large: bool
    ) -> AppendedBatch:
        """Append the batch: in the loop, unless it is large, or has many messages or parts."""

        names = request.columns.topics
        if 1 < len(names) <= _MOST_LOOKED_UP:
            self._chooser.look_up(names)

        def messages_in(budget: Budget | None = None) -> Sequence[Message]:
            return request_in(request, born_host, self._chooser.choose, budget or Budget())

        def numbered_in() -> tuple[Sequence[Message], int]:
            found = messages_in()
            return found, checksum_of(request, found)

        messages: Sequence[Message] | None = None
        if not large:
            with suppress(TooMuchError):
                messages = messages_in(inline_budget())
        if request.HasField("producer"):
            if messages is None:
                numbered, checksum = await self._bulk.run(numbered_in)
            else:
                numbered, checksum = messages, checksum_of(request, messages)
            producer = request.producer
            stored = await self.sessions.append(
                producer.producer_id,
                producer.sequence,
                numbered,
                checksum,
                large=messages is None,
            )
        elif messages is None:
            stored = await self._appender.large_of(messages_in)
        else:
            stored = await self._appender.small(messages)
        if not stored.repeated:
            self._metrics.put(topics_of(request), stored.record_bytes)
            current_caller().count_messages(stored.columns.message_count)
        response = batch_out(stored.columns, stored.store_time_ms, self._store_host)
        response.repeated_batch = stored.repeated
        return AppendedBatch(response, stored.end_offset)
