"""Put, pull, query, and the streams: decode, call, encode."""

from __future__ import annotations

from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.pb.v1 import kvcq_pb2_grpc
from server.puts.coalescer import of_single_put
from server.puts.durability import wait_visible
from server.puts.producer_sessions import check_number
from server.puts.stream import Answer, PutStream
from server.reads.long_poll import pull_or_wait, wait_seconds
from server.reads.reader import QueueRead, may_begin, read_queue
from server.reads.subscription import Subscription
from server.wire import convert
from server.wire.batch_checksum import checksum_of
from server.wire.call_errors import request_id_of
from server.wire.put_limits import MAX_MESSAGES, Budget, TooMuchError, inline_budget
from server.workers import QUEUES_A_TURN
from store.errors import InvalidArgumentError, MessageNotFoundError, UnknownTopicError
from store.format import parse_message_id
from store.reader import TagFilter

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Sequence

    from server.metrics import CallMetrics
    from server.stage import Parts, Stage
    from server.wire.call_errors import Context
    from server.wire.edge import Requests
    from store.message import Host, KeyQueryPage, Message

#: Of records in one response, whatever was asked for: what follows is another page. One message
#: always fits. A decoded page is about three times as large while it is made.
PAGE_BYTES = 8 << 20
#: Bounds of that many queues are read in the loop; more of them in a worker, slice by slice.
INLINE_QUEUES = 16


class MessageService(kvcq_pb2_grpc.MessageServiceServicer):
    """The paths messages take. Appends run in the loop: they cost microseconds."""

    def __init__(self, stage: Stage, metrics: CallMetrics) -> None:
        self._stage = stage
        self.metrics = metrics

    # --- put -------------------------------------------------------------------------------

    async def Put(
        self, request: pb.PutRequest, context: Context, *, large: bool = False
    ) -> pb.PutResponse:
        parts = self._stage.parts
        born_host = convert.host_of_peer(context.peer())
        if large:
            return await self._put_large(parts, request.message, born_host)
        try:
            message = convert.message_in(
                request.message, born_host, parts.chooser.choose, inline_budget()
            )
        except TooMuchError:
            return await self._put_large(parts, request.message, born_host)
        placed, store_time_ms = await parts.coalescer.put(message)
        self.metrics.count("messages_put")
        return pb.PutResponse(
            placed=convert.placed_out(placed, parts.store_host), store_time_ms=store_time_ms
        )

    async def _put_large(self, parts: Parts, given: pb.Message, born_host: Host) -> pb.PutResponse:
        def message_in() -> list[Message]:
            return [convert.message_in(given, born_host, parts.chooser.choose, Budget())]

        try:
            stored = await parts.appender.large_of(message_in)
        except InvalidArgumentError as error:
            raise of_single_put(error) from None
        await parts.durability.wait(stored.end_offset)
        self.metrics.count("messages_put")
        return pb.PutResponse(
            placed=convert.only_placed_out(stored.columns, parts.store_host),
            store_time_ms=stored.store_time_ms,
        )

    async def PutBatch(
        self, request: pb.PutBatchRequest, context: Context, *, large: bool = False
    ) -> pb.PutBatchResponse:
        parts = self._stage.parts
        born_host = convert.host_of_peer(context.peer())
        answer = await self._append(parts, request, born_host, large=large)
        if not parts.durability.is_durable(answer.end_offset):
            await parts.durability.wait(answer.end_offset)
        return answer.response

    async def PutStream(
        self, requests: Requests, context: Context
    ) -> AsyncGenerator[pb.PutStreamResponse, None]:
        parts = self._stage.parts
        born_host = convert.host_of_peer(context.peer())

        async def append(batch: pb.PutBatchRequest) -> Answer:
            try:
                return await self._append(parts, batch, born_host, large=requests.is_large)
            finally:
                requests.end()

        stream = PutStream(
            append,
            parts.durability,
            self._stage,
            self.metrics,
            request_id_of(context),
            parts.config.stream_window,
        )
        async with aclosing(stream.run(requests)) as responses:
            async for response in responses:
                yield response

    async def _append(
        self, parts: Parts, request: pb.PutBatchRequest, born_host: Host, *, large: bool
    ) -> Answer:
        """Append the batch: in the loop, unless it is large, or has many messages or parts."""

        def messages_in(budget: Budget | None = None) -> list[Message]:
            return convert.request_in(request, born_host, parts.chooser.choose, budget or Budget())

        def numbered_in() -> tuple[list[Message], int]:
            found = messages_in()
            return found, checksum_of(request, found)

        messages: list[Message] | None = None
        if not large:
            with suppress(TooMuchError):
                messages = messages_in(inline_budget())
        if request.HasField("producer"):
            if messages is None:
                numbered, checksum = await parts.bulk.run(numbered_in)
            else:
                numbered, checksum = messages, checksum_of(request, messages)
            producer = request.producer
            stored = await parts.sessions.append(
                producer.producer_id,
                producer.sequence,
                numbered,
                checksum,
                large=messages is None,
            )
        elif messages is None:
            stored = await parts.appender.large_of(messages_in)
        else:
            stored = await parts.appender.small(messages)
        if not stored.repeated:
            self.metrics.count("messages_put", stored.columns.message_count)
        response = convert.batch_out(stored.columns, stored.store_time_ms, parts.store_host)
        response.repeated_batch = stored.repeated
        return Answer(response, stored.end_offset)

    # --- pull ------------------------------------------------------------------------------

    async def Pull(self, request: pb.PullRequest, context: Context) -> pb.PullResponse | bytes:
        parts = self._stage.parts
        config = parts.config
        topic, queue_id = request.topic, request.queue_id
        offset = convert.not_negative("offset", request.offset)
        convert.not_negative("queue_id", queue_id)
        form = convert.form_of(request.form)
        max_messages = convert.bounded(
            "max_messages",
            request.max_messages,
            convert.DEFAULT_PULL_MESSAGES,
            convert.MAX_PULL_MESSAGES,
        )
        max_bytes = convert.bounded(
            "max_bytes", request.max_bytes, convert.DEFAULT_PULL_BYTES, config.max_pull_bytes
        )
        max_bytes = min(max_bytes, PAGE_BYTES)
        wait_ms = convert.in_range("wait_ms", request.wait_ms, 0, config.max_wait_ms)

        tag_filter = TagFilter.parse(request.tag_filter)

        async def read() -> QueueRead:
            try:
                return await read_queue(
                    parts,
                    topic,
                    queue_id,
                    offset,
                    max_messages,
                    max_bytes,
                    tag_filter,
                    form,
                )
            except UnknownTopicError:
                if not (wait_ms and may_begin(topic, queue_id, offset)):
                    raise
                response = pb.PullResponse(status=pb.PULL_STATUS_NO_NEW_MESSAGE)
                return QueueRead(response.status, 0, response)

        if wait_ms:
            found = await pull_or_wait(
                read,
                (topic, queue_id),
                parts.growth,
                self._stage,
                wait_seconds(wait_ms, context.time_remaining()),
            )
        else:
            found = await read()
        self.metrics.count("messages_pulled", found.message_count)
        return found.response

    async def Subscribe(
        self, requests: AsyncIterator[pb.SubscribeRequest], context: Context
    ) -> AsyncGenerator[pb.SubscribeResponse | bytes, None]:
        subscription = Subscription(
            self._stage.parts, self._stage, self.metrics, request_id_of(context)
        )
        async with aclosing(subscription.run(requests)) as responses:
            async for response in responses:
                yield response

    # --- look-ups --------------------------------------------------------------------------

    async def Query(self, request: pb.QueryRequest, context: Context) -> bytes:
        parts = self._stage.parts
        if not request.key:
            raise InvalidArgumentError("key", "is empty")
        convert.not_negative("begin_time_ms", request.begin_time_ms)
        convert.not_negative("end_time_ms", request.end_time_ms)
        form = convert.form_of(request.form)
        limit = convert.bounded(
            "max_messages",
            request.max_messages,
            convert.DEFAULT_QUERY_MESSAGES,
            convert.MAX_QUERY_MESSAGES,
        )

        def query() -> pb.QueryResponse:
            return _page_out(
                parts.store.query(
                    request.topic,
                    request.key,
                    begin_ms=request.begin_time_ms,
                    end_ms=request.end_time_ms,
                    limit=limit,
                    cursor=request.cursor or None,
                    max_bytes=PAGE_BYTES,
                ),
                form,
            )

        return await parts.workers.encoded(query)

    async def Get(self, request: pb.GetRequest, context: Context) -> bytes:
        parts = self._stage.parts
        _, offset = parse_message_id(request.message_id)

        def get() -> pb.GetResponse:
            return pb.GetResponse(message=convert.stored_out(parts.store.get(offset)))

        try:
            return await parts.workers.encoded(get)
        except MessageNotFoundError as error:
            # The store knows places in the log alone; the caller knows the id.
            reason = str(error).partition(": ")[2]
            raise MessageNotFoundError(request.message_id, reason) from None

    async def GetBatch(self, request: pb.GetBatchRequest, context: Context) -> bytes:
        parts = self._stage.parts
        producer_id, sequence = request.producer.producer_id, request.producer.sequence
        check_number(producer_id, sequence)
        await wait_visible(parts.store)

        def find() -> bytes:
            records = parts.store.batch_records(producer_id, sequence)
            if records is None:
                raise MessageNotFoundError(
                    f"{producer_id}:{sequence}", "no batch in the log begins with that number"
                )
            there = [record for record in records if record is not None]
            response = pb.GetBatchResponse(message_count=len(records), records=b"".join(there))
            return response.SerializeToString()

        return await parts.workers.run(find)

    async def GetOffsets(
        self, request: pb.GetOffsetsRequest, context: Context
    ) -> pb.GetOffsetsResponse | bytes:
        parts = self._stage.parts
        queues = convert.queues_of(request.queues)

        def get(queues: Sequence[tuple[str, int]]) -> pb.GetOffsetsResponse:
            bounds = parts.store.bounds(queues)
            return pb.GetOffsetsResponse(
                queues=[
                    convert.bounds_out(topic, queue_id, one)
                    for (topic, queue_id), one in zip(queues, bounds, strict=True)
                ]
            )

        if len(queues) <= INLINE_QUEUES:
            return get(queues)
        return await parts.scans.encoded_slices(get, queues, QUEUES_A_TURN)

    async def SearchTime(
        self, request: pb.SearchTimeRequest, context: Context
    ) -> pb.SearchTimeResponse:
        parts = self._stage.parts
        boundary = convert.boundary_of(request.boundary)
        convert.not_negative("queue_id", request.queue_id)
        offset = await parts.workers.run(
            parts.store.search_time, request.topic, request.queue_id, request.time_ms, boundary
        )
        return pb.SearchTimeResponse(offset=offset)

    async def Echo(
        self, request: pb.EchoRequest, context: Context, *, large: bool = False
    ) -> pb.EchoResponse | bytes:
        def echo() -> pb.EchoResponse:
            return pb.EchoResponse(batch=request.batch, payload=request.payload)

        if len(request.batch.messages) > MAX_MESSAGES:
            raise InvalidArgumentError(
                "batch.messages",
                f"{len(request.batch.messages)} messages, more than {MAX_MESSAGES}",
            )
        return await self._stage.parts.bulk.encoded(echo) if large else echo()


def _page_out(page: KeyQueryPage, form: pb.RecordForm) -> pb.QueryResponse:
    response = pb.QueryResponse(cursor=page.cursor or b"", complete=page.complete)
    if form == pb.RECORD_FORM_WHOLE:
        response.records = b"".join(page.records)
    else:
        response.messages.extend(map(convert.stored_out, page.records))
    return response
