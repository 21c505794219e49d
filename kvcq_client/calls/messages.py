"""Calls that put and read messages."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from kvcq_client.arguments import (
    checked,
    number,
)
from kvcq_client.calls.call_group import CallGroup, queues_out
from kvcq_client.errors import NotFoundError
from kvcq_client.format import (
    Checker,
    StoredMessage,
    divided,
    outgoing_of,
    outgoing_or_message,
    placed,
    placed_all,
    split_records,
    with_message_fields,
    write_to,
)
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.results import Pulled, QueryPage, StoredBatch
from kvcq_client.trace import Trace, TraceEvent
from kvcq_client.values import (
    Boundary,
    Bounds,
    Message,
    MessageFields,
    Placed,
    Queue,
    given_at,
)
from kvcq_client.wire import from_wire, position_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Unpack


_BOUNDARIES = {Boundary.LOWER: pb.TIME_BOUNDARY_LOWER, Boundary.UPPER: pb.TIME_BOUNDARY_UPPER}

_check = partial(Checker().check, strict=True)


@checked(but=("put",))
class MessageCalls(CallGroup):
    """Puts, reads and finds messages."""

    @with_message_fields
    async def put(
        self,
        /,
        topic: str | Message,
        body: bytes | None = None,
        *,
        timeout_s: float | None = None,
        **fields: Unpack[MessageFields],
    ) -> Placed:
        """Store one message: `put("orders", b"hello")`. Fields: see Message, which may also be
        given instead of all fields. Use a producer for many messages.

        The message is sent once. After UnavailableError or DeadlineError without a reason, or when
        the call is cancelled (`asyncio.wait_for`, a cancelled task, Ctrl-C), it may be stored;
        putting it again may store it twice. A producer or `put_numbered` stores it once however
        often it is sent.

        Raises TypeError, ValueError, PermissionDeniedError, NotFoundError, InvalidArgumentError,
        ResourceExhaustedError when the disk is full, and the errors of every call.
        """
        if timeout_s is not None:
            number("timeout_s", timeout_s)
        request = pb.PutRequest()
        write_to(request.message, _check(outgoing_or_message(topic, body, fields))[0])
        answer = await self._call(self._messages.Put, request, timeout_s, may_repeat=False)
        return answer if isinstance(answer, Placed) else placed(answer)

    async def put_fan_out(
        self, message: Message, *, timeout_s: float | None = None
    ) -> list[Placed]:
        """Store a message in more light queues than fit into one record.

        It is stored atomically as several records of one batch. Each light queue gets it once, the
        topic's queues once for each record (the same queue if the message has a queue or an
        ordering key). Returns a place for each record; their light-queue offsets together are those
        of `message.light_queues`, in order and without repeated names. A record has room for 32,767
        bytes of properties, of which a light queue takes its name and 12 bytes. As with `put`, the
        batch is sent once.
        """
        light_queues = _check(outgoing_of(message))[0][5]
        parts = list(divided(replace(message, light_queues=tuple(light_queues))))
        request = pb.PutBatchRequest()
        for part in parts:
            write_to(request.messages.add(), _check(outgoing_of(part))[0])
        answer = await self._call(self._messages.PutBatch, request, timeout_s, may_repeat=False)
        return placed_all(answer, [len(part.light_queues) for part in parts])

    async def put_numbered(
        self,
        messages: Sequence[Message],
        *,
        producer_id: str,
        sequence: int,
        timeout_s: float | None = None,
    ) -> bool:
        """Store the messages atomically; repeating the same batch, at any time, changes nothing.

        For callers that cut the same batches each time, such as a job that may be run again.
        `sequence` is the number of the first message; the next batch of the id starts after the
        last one. Returns whether the batch was already stored. Raises NotPossibleError if out of
        sequence, NumberReusedError if other messages have that number, NumberPassedError if its
        batch has expired; nothing is stored then.
        """
        request = pb.PutBatchRequest(
            producer=pb.ProducerSequence(producer_id=producer_id, sequence=sequence)
        )
        for message in messages:
            checked_one, _ = _check(outgoing_of(message, "messages"))
            write_to(request.messages.add(), checked_one)
        answer = await self._call(self._messages.PutBatch, request, timeout_s)
        repeated: bool = answer.repeated_batch
        return repeated

    async def pull(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        max_messages: int = 1000,
        max_bytes: int | None = None,
        tag_filter: str = "",
        sql_filter: str = "",
        wait_s: float = 0.0,
        timeout_s: float | None = None,
    ) -> Pulled:
        """Messages of a queue from `offset` on; `wait_s`: how long to wait if there are none.

        `tag_filter`: such as "created || paid". `sql_filter`: instead of it, a condition on
        properties, such as "price > 10 AND TAGS = 'paid'". A response may then be empty although
        more messages follow after its `next_offset`.
        Raises OffsetOutOfRangeError, NotFoundError, DataLossError; RecreatedError if the offset is
        a Position, and the topic was deleted and created again since.
        """
        limit_s = self._connection.timeout_s if timeout_s is None else timeout_s
        answer = await self._call(
            self._messages.Pull,
            pb.PullRequest(
                topic=topic,
                queue_id=queue_id,
                offset=offset,
                max_messages=max_messages,
                max_bytes=max_bytes,
                tag_filter=tag_filter,
                sql_filter=sql_filter,
                wait_ms=round(wait_s * 1000),
                form=pb.RECORD_FORM_WHOLE,
                given_at=given_at(offset),
            ),
            limit_s + wait_s,
        )
        return Pulled(
            split_records(answer.records, answer.queue_offsets, queue=Queue(topic, queue_id)),
            position_in(answer, answer.next_offset),
            position_in(answer, answer.min_offset),
            position_in(answer, answer.max_offset),
        )

    async def query(
        self,
        topic: str,
        key: str,
        *,
        begin_time_ms: int | None = None,
        end_time_ms: int | None = None,
        max_messages: int = 32,
        cursor: bytes = b"",
        timeout_s: float | None = None,
    ) -> QueryPage:
        """Messages of the topic with the key, oldest first; times are inclusive.

        Raises DataLossError if the next message is damaged; its `next_cursor` continues after it.
        """
        answer = await self._call(
            self._messages.Query,
            pb.QueryRequest(
                topic=topic,
                key=key,
                begin_time_ms=begin_time_ms,
                end_time_ms=end_time_ms,
                max_messages=max_messages,
                cursor=cursor,
                form=pb.RECORD_FORM_WHOLE,
            ),
            timeout_s,
        )
        return QueryPage(split_records(answer.records), answer.cursor, answer.complete)

    async def get(self, message_id: str, *, timeout_s: float | None = None) -> StoredMessage:
        """One message by the id that a put returned. Raises NotFoundError."""
        # The service answers with the decoded form; the record itself is in the queue.
        answer = await self._call(
            self._messages.Get, pb.GetRequest(message_id=message_id), timeout_s
        )
        return await self._stored(answer.message, timeout_s)

    async def trace(
        self,
        message_id: str = "",
        *,
        handle: str = "",
        topic: str = "",
        transaction_id: str = "",
        page_token: str = "",
        search_s: float = 10.0,
        timeout_s: float | None = None,
    ) -> Trace:
        """What became of a message: who received it, when and how often, when it was acknowledged.

        Identify it by the id that a put returned, by the `handle` of a delayed message and its
        `topic`, or by the id of a transaction. The server searches its log from the message onward.
        After `search_s` it returns what it has found so far, and a `next_page_token` to continue.
        Only groups with which the caller may receive or read are included. `timeout_s` is for each
        half second of the search. Raises NotFoundError, also when the message has left the log.
        """
        request = pb.TraceRequest(
            message_id=message_id,
            handle=handle,
            topic=topic,
            transaction_id=transaction_id,
            page_token=page_token,
        )
        until_s = monotonic() + search_s
        events: list[TraceEvent] = []
        while True:
            answer = await self._call(self._messages.Trace, request, timeout_s)
            page = from_wire(Trace, answer)
            events += page.events
            request.page_token = page.next_page_token
            if not page.next_page_token or monotonic() >= until_s:
                return page._replace(events=tuple(events))

    async def stored_batch(
        self, producer_id: str, sequence: int, *, timeout_s: float | None = None
    ) -> StoredBatch | None:
        """The batch that `put_numbered` stored under that number; None if none starts with it."""
        try:
            answer = await self._call(
                self._messages.GetBatch,
                pb.GetBatchRequest(
                    producer=pb.ProducerSequence(producer_id=producer_id, sequence=sequence)
                ),
                timeout_s,
            )
        except NotFoundError:
            return None
        return StoredBatch(split_records(answer.records), answer.message_count)

    async def _stored(self, message: pb.StoredMessage, timeout_s: float | None) -> StoredMessage:
        pulled = await self.pull(
            message.topic,
            message.queue_id,
            message.queue_offset,
            max_messages=1,
            timeout_s=timeout_s,
        )
        found = pulled.messages
        if not found or found[0].physical_offset != message.physical_offset:
            raise NotFoundError(f"{message.message_id} was deleted meanwhile")
        return found[0]

    async def offsets(
        self, queues: Iterable[Queue], *, timeout_s: float | None = None
    ) -> dict[Queue, Bounds]:
        """The first offset and the end of each queue. Raises NotFoundError."""
        found: dict[Queue, Bounds] = {}
        for part in queues_out(queues):
            answer = await self._call(
                self._messages.GetOffsets, pb.GetOffsetsRequest(queues=part), timeout_s
            )
            for one in answer.queues:
                found[Queue(one.topic, one.queue_id)] = Bounds(
                    position_in(one, one.min_offset), position_in(one, one.max_offset)
                )
        return found

    async def search_time(
        self,
        topic: str,
        queue_id: int,
        time_ms: int,
        boundary: Boundary = Boundary.LOWER,
        *,
        timeout_s: float | None = None,
    ) -> int:
        """The offset of the first message stored at or after a time; with UPPER, of the last one
        stored at or before it."""
        answer = await self._call(
            self._messages.SearchTime,
            pb.SearchTimeRequest(
                topic=topic, queue_id=queue_id, time_ms=time_ms, boundary=_BOUNDARIES[boundary]
            ),
            timeout_s,
        )
        offset: int = answer.offset
        return offset
