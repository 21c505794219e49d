"""Put, pull, query, and the streams: decode, call, encode."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.pb.v1 import kvcq_pb2_grpc
from server.access import ResourceKind, Role, current_caller
from server.edge import request_id_of
from server.puts import check_number, name_of, wait_visible
from server.services.paging import cursor_of
from server.wire import (
    DEFAULT_QUERY_MESSAGES,
    MAX_MESSAGES,
    MAX_QUERY_MESSAGES,
    PAGE_BYTES,
    boundary_of,
    bounded,
    bounds_out,
    form_of,
    host_of_peer,
    not_more,
    not_negative,
    queues_of,
    stored_out,
    story_out,
)
from store.errors import InvalidArgumentError, MessageNotFoundError
from store.format import parse_message_id

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence

    from server.edge import Context, Requests
    from server.puts import Puts
    from server.reads import Reads
    from server.workers import Pools
    from store.message import KeyQueryPage
    from store.message_store import MessageStore
    from store.trace import Found, Story

#: Bounds of that many queues are read in the loop; more of them in a worker, slice by slice.
INLINE_QUEUES = 16


class MessageService(kvcq_pb2_grpc.MessageServiceServicer):
    """Puts, pulls, queries and streams of messages."""

    def __init__(self, store: MessageStore, puts: Puts, reads: Reads, pools: Pools) -> None:
        self._store = store
        self._puts = puts
        self._reads = reads
        self._pools = pools

    async def Put(
        self, request: pb.PutRequest, context: Context, *, large: bool = False
    ) -> pb.PutResponse:
        born_host = host_of_peer(context.peer())
        return await self._puts.put(request.message, born_host, large=large)

    def Put_now(self, request: pb.PutRequest, context: Context) -> pb.PutResponse | None:
        return self._puts.put_now(request.message, host_of_peer(context.peer()))

    async def PutBatch(
        self, request: pb.PutBatchRequest, context: Context, *, large: bool = False
    ) -> pb.PutBatchResponse:
        return await self._puts.put_batch(request, host_of_peer(context.peer()), large=large)

    async def PutStream(
        self, requests: Requests, context: Context
    ) -> AsyncGenerator[pb.PutStreamResponse, None]:
        born_host = host_of_peer(context.peer())
        stream = self._puts.stream(requests, born_host, request_id_of(context))
        async with aclosing(stream) as responses:
            async for response in responses:
                yield response

    async def Pull(self, request: pb.PullRequest, context: Context) -> bytes:
        remaining_s = context.time_remaining() if request.wait_ms else None
        return await self._reads.pull(request, remaining_s)

    def Pull_now(self, request: pb.PullRequest, context: Context) -> bytes | None:
        return self._reads.pull_now(request)

    async def Subscribe(
        self, requests: AsyncIterator[pb.SubscribeRequest], context: Context
    ) -> AsyncGenerator[bytes, None]:
        host, port = host_of_peer(context.peer())
        stream = self._reads.subscribe(requests, request_id_of(context), f"{host}:{port}")
        async with aclosing(stream) as responses:
            async for response in responses:
                yield response

    async def Query(self, request: pb.QueryRequest, context: Context) -> bytes:
        if not request.key:
            raise InvalidArgumentError("key", "is empty")
        not_negative("begin_time_ms", request.begin_time_ms)
        not_negative("end_time_ms", request.end_time_ms)
        form = form_of(request.form)
        limit = bounded(
            "max_messages",
            request.max_messages,
            DEFAULT_QUERY_MESSAGES,
            MAX_QUERY_MESSAGES,
        )

        def query() -> pb.QueryResponse:
            return _page_out(
                self._store.query(
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

        return await self._pools.lookups.encoded(query)

    async def Get(self, request: pb.GetRequest, context: Context) -> bytes:
        _, offset = parse_message_id(request.message_id)

        caller = current_caller()

        def get() -> pb.GetResponse:
            message = stored_out(self._store.get(offset))
            caller.reads_found((message.topic,), f"message {request.message_id}")
            return pb.GetResponse(message=message)

        try:
            return await self._pools.lookups.encoded(get)
        except MessageNotFoundError as error:
            # The store only knows positions in the log; the caller knows the id.
            reason = str(error).partition(": ")[2]
            raise MessageNotFoundError(request.message_id, reason) from None

    async def Trace(self, request: pb.TraceRequest, context: Context) -> bytes:
        name, find = self._traced(request)
        cursor = cursor_of(request.page_token)
        caller, traces = current_caller(), self._store.traces

        def tell() -> Story:
            found = find()
            caller.reads_found((found.subject.topic,), f"message {name}")
            return traces.story(found, cursor, caller.may_see_group)

        try:
            story = await self._pools.scans.run(tell)
        except MessageNotFoundError as error:
            raise MessageNotFoundError(name, str(error).partition(": ")[2]) from None
        receivers = self._reads.receivers(
            {each.nonce for each in story.events} | {each.nonce for each in story.standings}
        )
        is_limited = not caller.is_unbound(Role.SUBSCRIBE, ResourceKind.GROUP)
        return await self._pools.scans.encoded(
            lambda: story_out(story, receivers, is_limited=is_limited)
        )

    def _traced(self, request: pb.TraceRequest) -> tuple[str, Callable[[], Found]]:
        """How the caller names the message, and a function that finds it."""
        traces = self._store.traces
        given = [
            field for field in ("message_id", "handle", "transaction_id") if getattr(request, field)
        ]
        if len(given) != 1:
            raise InvalidArgumentError(
                "message_id",
                f"{' and '.join(given) or 'none'} given: give message_id, handle with topic, or "
                "transaction_id",
            )
        if request.message_id:
            _, offset = parse_message_id(request.message_id)
            return request.message_id, lambda: traces.message(offset)
        if request.handle:
            if not request.topic:
                raise InvalidArgumentError("topic", "is empty: a handle is of a topic")
            return request.handle, lambda: traces.timer(request.topic, request.handle)
        return request.transaction_id, lambda: traces.transaction(request.transaction_id)

    async def GetBatch(self, request: pb.GetBatchRequest, context: Context) -> bytes:
        producer_id, sequence = request.producer.producer_id, request.producer.sequence
        check_number(producer_id, sequence)
        await wait_visible(self._store)
        caller, name = current_caller(), name_of(producer_id)

        def find() -> bytes:
            records = self._store.batch_records(name, sequence)
            if records is None:
                raise MessageNotFoundError(
                    f"{producer_id}:{sequence}", "the log has no batch that starts with that number"
                )
            there = [record for record in records if record is not None]
            if not caller.is_unbound(Role.SUBSCRIBE, ResourceKind.TOPIC):
                topics = {stored_out(record).topic for record in there}
                caller.reads_found(topics, f"batch {producer_id}:{sequence}")
            response = pb.GetBatchResponse(message_count=len(records), records=b"".join(there))
            return response.SerializeToString()

        return await self._pools.lookups.run(find)

    async def GetProducer(
        self, request: pb.GetProducerRequest, context: Context
    ) -> pb.GetProducerResponse:
        found = await self._puts.sessions.next_sequence(request.producer_id)
        return pb.GetProducerResponse(next_sequence=found)

    async def GetOffsets(
        self, request: pb.GetOffsetsRequest, context: Context
    ) -> pb.GetOffsetsResponse | bytes:
        queues = queues_of(request.queues)

        def get(queues: Sequence[tuple[str, int]]) -> pb.GetOffsetsResponse:
            bounds, given_at = self._store.with_given_at(
                [topic for topic, _ in queues], lambda: self._store.bounds(queues)
            )
            return pb.GetOffsetsResponse(
                queues=[
                    bounds_out(topic, queue_id, one, given_at=given_at)
                    for (topic, queue_id), one in zip(queues, bounds, strict=True)
                ]
            )

        if len(queues) <= INLINE_QUEUES:
            return get(queues)
        return await self._pools.scans.encoded_slices(get, queues)

    async def SearchTime(
        self, request: pb.SearchTimeRequest, context: Context
    ) -> pb.SearchTimeResponse:
        boundary = boundary_of(request.boundary)
        not_negative("queue_id", request.queue_id)
        offset = await self._pools.lookups.run(
            self._store.search_time, request.topic, request.queue_id, request.time_ms, boundary
        )
        return pb.SearchTimeResponse(offset=offset)

    async def Echo(
        self, request: pb.EchoRequest, context: Context, *, large: bool = False
    ) -> pb.EchoResponse | bytes:
        def echo() -> pb.EchoResponse:
            return pb.EchoResponse(batch=request.batch, payload=request.payload)

        not_more("batch.messages", request.batch.messages, MAX_MESSAGES, "messages")
        return await self._pools.scans.encoded(echo) if large else echo()


def _page_out(page: KeyQueryPage, form: pb.RecordForm) -> pb.QueryResponse:
    response = pb.QueryResponse(cursor=page.cursor or b"", complete=page.complete)
    if form == pb.RECORD_FORM_WHOLE:
        response.records = b"".join(page.records)
    else:
        response.messages.extend(map(stored_out, page.records))
    return response
